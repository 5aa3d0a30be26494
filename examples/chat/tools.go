package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// chatKey is where the context of a run has the ID of its chat.
type chatKey struct{}

func chatOf(ctx context.Context) string {
	id, _ := ctx.Value(chatKey{}).(string)
	return id
}

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
	Refunded bool   `json:"refunded"`
}

// ordersTool looks something up.
func ordersTool(s *store) fnloop.Tool {
	type input struct {
		Customer string `json:"customer" jsonschema:"description=A part of the customer's name; empty for all."`
	}
	return fnloop.MustTool("orders", "Finds the orders of a customer.", func(ctx context.Context, in input) (list []order, err error) {
		err = s.all(ctx, func(r *sql.Rows) error {
			var o order
			defer func() { list = append(list, o) }()
			return r.Scan(&o.ID, &o.Customer, &o.Item, &o.Cents, &o.Refunded)
		}, `SELECT id, customer, item, cents, refund <> '' FROM orders WHERE LOWER(customer) LIKE '%' || LOWER($1) || '%' ORDER BY id LIMIT 50`, in.Customer)
		if err != nil {
			return nil, fnloop.Abort(fmt.Errorf("orders: %w", err))
		}
		return list, nil
	})
}

// refundTool changes something, so a person has to approve each call. An order is
// refunded once, whatever is approved: the statement sees to it.
func refundTool(s *store) fnloop.Tool {
	type input struct {
		Order string `json:"order" jsonschema:"description=The ID of the order."`
	}
	tool := fnloop.MustTool("refund", "Refunds an order in full. A person approves it first.", func(ctx context.Context, in input) (string, error) {
		call, _ := fnloop.CallFrom(ctx)
		done, err := s.db.ExecContext(ctx, `UPDATE orders SET refund = $1 WHERE id = $2 AND refund = ''`, chatOf(ctx)+"/"+call.ID, in.Order)
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

// newSessions keeps an interpreter for each chat. The files of a chat are in the
// database too: a new interpreter gets them from there, and what its code has
// made the user can download.
func newSessions(r fnloop.Runner, s *store) *interpreter.Sessions {
	return &interpreter.Sessions{
		Runner: r,
		OnOpen: func(ctx context.Context, session *interpreter.Session) error {
			names, _, err := s.names(ctx, chatOf(ctx))
			if err != nil {
				return err
			}
			return restore(ctx, s, session, names)
		},
		OnCell: func(ctx context.Context, session *interpreter.Session, e interpreter.Execution) error {
			for _, f := range e.Files {
				if err := keep(ctx, s, session, f); err != nil {
					return fmt.Errorf("keeping %q: %w", f.Name, err)
				}
			}
			return nil
		},
	}
}

// restore puts files of the database into the work folder.
func restore(ctx context.Context, s *store, session *interpreter.Session, names []string) error {
	for _, name := range names {
		f, err := s.file(ctx, chatOf(ctx), name)
		if err != nil {
			return err
		}
		if err := session.Put(ctx, name, bytes.NewReader(f.data)); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a file that code has changed, unless there is no room for it.
func keep(ctx context.Context, s *store, session *interpreter.Session, f interpreter.FileChange) error {
	if f.Change == interpreter.FileRemoved {
		_, err := s.db.ExecContext(ctx, `DELETE FROM files WHERE chat = $1 AND name = $2 AND NOT picture`, chatOf(ctx), f.Name)
		return err
	}
	_, size, err := s.names(ctx, chatOf(ctx))
	if err != nil || f.Size > maxFile || size+f.Size > maxFiles {
		return err
	}
	r, err := session.Get(ctx, f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone again
	} else if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1)) // it may have grown since
	if err != nil || len(data) > maxFile {
		return err
	}
	return putFile(ctx, s.db, chatOf(ctx), file{name: f.Name, data: data})
}
