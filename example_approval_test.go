package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// One process asks for approval and ends. Another one, with a Loop of its own,
// reads the stored Answer, decides and goes on.
func ExampleAnswer_Decide() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "remove", `{"file":"cache.db"}`),
		responsestest.Text("The cache is gone."),
	)
	defer srv.Close()

	type input struct {
		File string `json:"file"`
	}
	newLoop := func() *fnloop.Loop { // each process makes the same one
		remove := fnloop.MustTool("remove", "Removes a file.",
			func(_ context.Context, in input) (string, error) { return in.File + " is removed", nil })
		remove.NeedsApproval = fnloop.Always
		return &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{remove}}
	}
	ctx := context.Background()

	// The first process stores the Answer and shows what waits.
	answer, err := newLoop().Run(ctx, "Make some room.")
	if !errors.Is(err, fnloop.ErrApproval) {
		fmt.Println(err)
		return
	}
	stored, err := json.Marshal(answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range answer.Waiting() {
		fmt.Printf("%s: %s%s?\n", call.ID, call.Name, call.Arguments)
	}

	// The second process gets the decisions from a browser.
	var later fnloop.Answer
	if err := json.Unmarshal(stored, &later); err != nil {
		fmt.Println(err)
		return
	}
	if err := later.Decide(map[string]fnloop.Decision{"call_1": {Approve: true}}); err != nil {
		fmt.Println(err)
		return
	}
	answer, err = newLoop().Continue(ctx, &later, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Calls[0].Text)
	fmt.Println(answer.Text)
	// Output:
	// call_1: remove{"file":"cache.db"}?
	// cache.db is removed
	// The cache is gone.
}
