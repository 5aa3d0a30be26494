package fnloop_test

import (
	"context"
	"fmt"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A Loop can be the tool of another one. It runs with the context of the
// handler: its events are CallEvents of the outer run, which counts its tokens.
func ExampleCallEvent() {
	srv := responsestest.NewServer( // both loops ask it, in this order
		responsestest.Call("call_1", "research", `{"question":"How high is the mountain?"}`),
		responsestest.Text("2,469 metres."),
		responsestest.Text("Galdhøpiggen is 2,469 metres high."),
	)
	defer srv.Close()

	researcher := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-mini", Instructions: "Answer in one line."}
	type input struct {
		Question string `json:"question"`
	}
	research := fnloop.MustTool("research", "Finds out one fact.",
		func(ctx context.Context, in input) (string, error) {
			answer, err := researcher.Run(ctx, in.Question)
			if err != nil {
				return "", err
			}
			return answer.Text, nil
		})

	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{research}}
	for event, err := range loop.Events(context.Background(), nil, "How high is Galdhøpiggen?") {
		switch e := event.(type) {
		case fnloop.CallEvent:
			if finished, ok := e.Event.(fnloop.ResponseFinished); ok {
				fmt.Println("within", e.ID+":", finished.Model)
			}
		case fnloop.CallFinished:
			fmt.Println(e.Name, "says", e.Text)
		case fnloop.Done:
			fmt.Println(e.Answer.Text, err)
		}
	}
	// Output:
	// within call_1: gpt-6-mini
	// research says 2,469 metres.
	// Galdhøpiggen is 2,469 metres high. <nil>
}
