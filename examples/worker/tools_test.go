package main

import (
	"context"
	"database/sql"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

const bookings = `CREATE TABLE bookings (call TEXT NOT NULL)`

// bookTool has its effect in the database of the runs.
func bookTool() fnloop.Tool {
	return fnloop.MustTool("book", "Books.", func(ctx context.Context, _ struct{}) (string, error) {
		r, _ := chatstore.RunFrom(ctx)
		c, _ := fnloop.CallFrom(ctx)
		err := r.Hold(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO bookings VALUES ($1)`, r.Chat+"/"+c.ID)
			return err
		})
		if err != nil {
			return "", fnloop.Abort(err)
		}
		return "done", nil
	})
}
