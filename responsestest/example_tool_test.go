package responsestest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A test of a tool of your own: the model calls it with arguments that you
// choose, and the test looks at what the model then reads. Srv.Err says whether
// the service would have taken the requests; in a test, call t.Error with it.
func Example_testingATool() {
	type transfer struct {
		To    string `json:"to"`
		Cents int    `json:"cents" jsonschema:"minimum=1"`
	}
	pay := fnloop.MustTool("pay", "Pays an amount.",
		func(_ context.Context, in transfer) (string, error) {
			if in.To == "nobody" {
				return "", errors.New("there is no such account")
			}
			return fmt.Sprintf("paid %d to %s", in.Cents, in.To), nil
		})

	for _, arguments := range []string{
		`{"to":"ada","cents":5}`,
		`{"to":"nobody","cents":5}`,
		`{"to":"ada","cents":0}`,
	} {
		srv := responsestest.NewServer(
			responsestest.Call("call_1", "pay", arguments),
			responsestest.Func(func(t *responsestest.Turn) responsestest.Reply {
				output, _ := t.Output("call_1")
				return responsestest.Text("I read: " + output)
			}),
		)
		loop := &fnloop.Loop{Client: srv.Client(), Model: "stub-1", Tools: []fnloop.Tool{pay}}
		answer, err := loop.Run(context.Background(), "Pay Ada.")
		fmt.Println(answer.Text)
		fmt.Println(answer.Calls[0].IsError, err, srv.Err())
		srv.Close()
	}
	// Output:
	// I read: paid 5 to ada
	// false <nil> <nil>
	// I read: there is no such account
	// true <nil> <nil>
	// I read: cents: expected integer of at least 1, got 0
	// true <nil> <nil>
}
