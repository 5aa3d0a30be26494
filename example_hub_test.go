package fnloop_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A server that shuts down takes no new runs and lets those that are going on
// end. Those that take too long are stopped, and another process continues them.
func ExampleHub_Drain() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "wait", `{}`),
		responsestest.Text("I waited."),
	)
	defer srv.Close()

	started := make(chan struct{})
	wait := fnloop.MustTool("wait", "Waits for long.",
		func(ctx context.Context, _ struct{}) (string, error) {
			close(started)
			<-ctx.Done()
			return "", ctx.Err()
		})
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{wait}}

	var hub fnloop.Hub
	stored := make(chan *fnloop.Answer, 1) // a database
	err := hub.Start(context.Background(), "chat-7", func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
		return func(yield func(fnloop.Event, error) bool) {
			for event, err := range loop.Events(ctx, nil, "Wait for it.") {
				if done, ok := event.(fnloop.Done); ok {
					stored <- done.Answer
				}
				if !yield(event, err) {
					return
				}
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-started

	// The server has got the signal to stop: runs have a moment to end.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(errors.Is(hub.Drain(ctx), context.DeadlineExceeded))
	err = hub.Start(context.Background(), "chat-8", nil)
	fmt.Println(err)

	// Another process goes on from what was stored.
	answer := <-stored
	fmt.Println(answer.Stop, "because", answer.Cause)
	answer, err = loop.Continue(context.Background(), answer, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Text)
	// Output:
	// true
	// fnloop: the server is shutting down
	// cancelled because fnloop: the server is shutting down
	// I waited.
}
