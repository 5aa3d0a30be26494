package fnloop_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A meter counts the requests that it passes on. It wraps both ways to send one:
// New is for Run, and NewStreaming for Events.
type meter struct {
	next     fnloop.Streamer
	requests atomic.Int64 // attempts: a request that is sent again counts again
}

func (m *meter) New(ctx context.Context, p responses.ResponseNewParams, opts ...option.RequestOption) (*responses.Response, error) {
	m.requests.Add(1)
	return m.next.New(ctx, p, opts...)
}

func (m *meter) NewStreaming(ctx context.Context, p responses.ResponseNewParams, opts ...option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	m.requests.Add(1)
	return m.next.NewStreaming(ctx, p, opts...)
}

// A Client of your own sees each request before it is sent, a repeated one too.
// It passes on the options, which are the Loop's. Tokens need no counting of
// one's own: they are in Answer.Usage and in ResponseFinished events.
func ExampleStreamer() {
	srv := responsestest.NewServer(
		responsestest.RateLimited(0),
		responsestest.Text("Hello!"),
		responsestest.Text("Hello again!"),
	)
	defer srv.Close()

	client := &meter{next: srv.Client()}
	loop := &fnloop.Loop{Client: client, Model: "gpt-6-astra"}
	ctx := context.Background()
	answer, err := loop.Run(ctx, "Say hello.")
	if err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range loop.Events(ctx, answer, "Once more.") {
		if done, ok := event.(fnloop.Done); ok {
			fmt.Println(done.Answer.Text, err)
		}
	}
	fmt.Println(client.requests.Load(), "requests")
	// Output:
	// Hello again! <nil>
	// 3 requests
}
