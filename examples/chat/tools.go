package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/mcptool"
)

// shop makes what the tools look at: the orders of a shop.
const shop = `
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, cents BIGINT NOT NULL, refund TEXT NOT NULL);
INSERT INTO orders VALUES ('A-1001', 'Mina Okafor', 'walking boots', 12900, ''), ('A-1002', 'Mina Okafor', 'rain jacket', 8450, ''),
	('A-1003', 'Jonas Lind', 'tent for two', 24900, '') ON CONFLICT (id) DO NOTHING;`

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
	Refunded bool   `json:"refunded"`
}

// ordersTool looks something up.
func ordersTool(db *sql.DB) fnloop.Tool {
	type input struct {
		Customer string `json:"customer" jsonschema:"description=A part of the customer's name; empty for all."`
	}
	return fnloop.MustTool("orders", "Finds the orders of a customer.", func(ctx context.Context, in input) ([]order, error) {
		rows, err := db.QueryContext(ctx, `SELECT id, customer, item, cents, refund <> '' FROM orders
			WHERE LOWER(customer) LIKE '%' || LOWER($1) || '%' ORDER BY id LIMIT 50`, in.Customer)
		if err != nil {
			return nil, fnloop.Abort(fmt.Errorf("orders: %w", err))
		}
		defer rows.Close()
		var list []order
		for err == nil && rows.Next() {
			var o order
			err = rows.Scan(&o.ID, &o.Customer, &o.Item, &o.Cents, &o.Refunded)
			list = append(list, o)
		}
		if err = errors.Join(err, rows.Err()); err != nil {
			return nil, fnloop.Abort(fmt.Errorf("orders: %w", err))
		}
		return list, nil
	})
}

// refundTool changes something, so a person has to approve each call. An order is
// refunded once, whatever is approved: the statement sees to it.
func refundTool(db *sql.DB) fnloop.Tool {
	type input struct {
		Order string `json:"order" jsonschema:"description=The ID of the order."`
	}
	tool := fnloop.MustTool("refund", "Refunds an order in full. A person approves it first.", func(ctx context.Context, in input) (string, error) {
		call, _ := fnloop.CallFrom(ctx)
		done, err := db.ExecContext(ctx, `UPDATE orders SET refund = $1 WHERE id = $2 AND refund = ''`, chatstore.ChatID(ctx)+"/"+call.ID, in.Order)
		if err != nil {
			return "", fnloop.Abort(fmt.Errorf("refund: %w", err))
		}
		if n, err := done.RowsAffected(); err != nil {
			return "", fnloop.Abort(fmt.Errorf("refund: %w", err))
		} else if n == 0 {
			return "", fmt.Errorf("order %q does not exist or was refunded before", in.Order)
		}
		return "refunded " + in.Order, nil
	})
	tool.NeedsApproval = fnloop.Always
	return tool
}

// serverTools are the tools of a file's MCP servers, whose calls a person approves.
func serverTools(ctx context.Context, file string, log *slog.Logger) (tools []fnloop.Tool, end func(), err error) {
	var servers []mcptool.Server
	if file != "" {
		data, err := os.ReadFile(file)
		if err == nil {
			servers, err = mcptool.ReadServers(data, os.LookupEnv)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the servers of -mcp: %w", err)
		}
	}
	for i := range servers {
		servers[i].NeedsApproval, servers[i].Logger = fnloop.Always, log
	}
	conns, err := mcptool.ConnectAll(ctx, servers...)
	for _, c := range conns {
		more, left := c.Tools(ctx)
		tools, err = append(tools, more...), errors.Join(err, left)
	}
	if err != nil { // what is down keeps nothing from working
		log.Error("not all tools of -mcp are there", "error", err)
	}
	return tools, func() {
		for _, c := range conns {
			c.Close()
		}
	}, nil
}
