package fnloop_test

import (
	"context"
	"fmt"
	"io"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A handler shows what it prints while it works. Without a reader of events
// there is nobody to show it to, and it costs nothing.
func ExampleLiveOutput() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "build", `{}`),
		responsestest.Text("It is built."),
	)
	defer srv.Close()

	build := fnloop.MustTool("build", "Builds the project.",
		func(ctx context.Context, _ struct{}) (string, error) {
			stdout, _ := fnloop.LiveOutput(ctx)
			if stdout == nil { // nobody listens
				stdout = io.Discard
			}
			for step := 1; step <= 2; step++ { // or the Stdout of an exec.Cmd
				fmt.Fprintf(stdout, "step %d of 2\n", step)
			}
			return "ok", nil
		})

	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{build}}
	for event, err := range loop.Events(context.Background(), nil, "Build it.") {
		switch e := event.(type) {
		case fnloop.CallOutput:
			fmt.Printf("%s %s: %s", e.ID, e.Stream, e.Text)
		case fnloop.Done:
			fmt.Println(e.Answer.Text, err)
		}
	}
	// Output:
	// call_1 stdout: step 1 of 2
	// call_1 stdout: step 2 of 2
	// It is built. <nil>
}
