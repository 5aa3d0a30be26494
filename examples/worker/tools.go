package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/responsestest"
)

// refundTool changes something, so a person has to approve each call. What it changes is
// in the database of the runs, so it is changed under the run: by the process that has
// it, and by none that has lost it.
func refundTool() fnloop.Tool {
	type input struct {
		Order string `json:"order" jsonschema:"description=The ID of the order."`
	}
	tool := fnloop.MustTool("refund", "Refunds an order in full. A person approves it first.", func(ctx context.Context, in input) (string, error) {
		call, _ := fnloop.CallFrom(ctx)
		run, _ := chatstore.RunFrom(ctx)
		var rows int64
		err := run.Hold(ctx, func(tx *sql.Tx) error {
			done, err := tx.ExecContext(ctx, `INSERT INTO refunds (purchase, call) VALUES ($1, $2) ON CONFLICT DO NOTHING`, in.Order, run.Chat+"/"+call.ID)
			if err == nil {
				rows, err = done.RowsAffected()
			}
			return err
		})
		if err != nil {
			return "", fnloop.Abort(fmt.Errorf("refund: %w", err))
		}
		if rows == 0 {
			return "", errors.New("the order was refunded before")
		}
		return "refunded " + in.Order, nil
	})
	tool.NeedsApproval = fnloop.Always
	return tool
}

const shop = `CREATE TABLE IF NOT EXISTS refunds (purchase TEXT PRIMARY KEY, call TEXT NOT NULL);`

const primes = `print([n for n in range(2, 60) if all(n % d for d in range(2, n))])`

const slow = `import time
for i in range(1, 9):
    time.sleep(0.5)
    print(i, "squared is", i * i, flush=True)`

// script is the model that answers without a key.
func script(t *responsestest.Turn) responsestest.Reply {
	prompt, outputs := strings.ToLower(t.Prompt()), t.Outputs()
	reply := responsestest.Text("I am only a script. Ask for primes, for squares, or for a refund of A-1002.")
	python := func(why, code string) responsestest.Reply {
		arguments, _ := json.Marshal(map[string]string{"code": code})
		return responsestest.Join(responsestest.Commentary(why), responsestest.Call("", "run_python", string(arguments)))
	}
	last := ""
	if len(outputs) > 0 {
		last = outputs[len(outputs)-1]
		var result fnloop.Result
		if json.Unmarshal([]byte(last), &result) == nil && result.Stdout != "" {
			last = strings.TrimSpace(result.Stdout)
		}
	}
	switch {
	case last != "":
		reply = responsestest.Text("Here you are: " + last)
	case strings.Contains(prompt, "prime"):
		reply = python("I run a program for that.", primes)
	case strings.Contains(prompt, "square"):
		reply = python("That takes a while.", slow)
	case strings.Contains(prompt, "refund"):
		reply = responsestest.Call("", "refund", `{"order":"A-1002"}`)
	}
	reply.Pause = 25 * time.Millisecond
	return reply
}
