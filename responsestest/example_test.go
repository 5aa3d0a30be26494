package responsestest_test

import (
	"context"
	"fmt"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop/responsestest"
)

func Example() {
	srv := responsestest.NewServer(responsestest.Text("Hello!"))
	defer srv.Close()

	resp, err := srv.Client().New(context.Background(), responses.ResponseNewParams{
		Model: "stub-1",
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("Say hello.")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.OutputText())
	fmt.Println(srv.Err())
	// Output:
	// Hello!
	// <nil>
}

// A call that is left without its output is refused as the service refuses it.
func Example_refusal() {
	srv := responsestest.NewServer(responsestest.Call("call_1", "add", `{"a":2,"b":3}`))
	defer srv.Close()
	client := srv.Client()

	first, err := client.New(context.Background(), ask("What is 2 and 3?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.New(context.Background(), responses.ResponseNewParams{
		Model:              "stub-1",
		PreviousResponseID: param.NewOpt(first.ID),
		Input:              responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("Never mind.")},
	})
	if e, ok := err.(*responses.Error); ok {
		fmt.Println(e.StatusCode, e.Message)
	}
	// Output:
	// 400 No tool output found for function call call_1.
}

// The model of an Always script answers from what it reads.
func ExampleAlways() {
	srv := responsestest.NewServer(responsestest.Always(func(t *responsestest.Turn) responsestest.Reply {
		return responsestest.Text("You said: " + t.Prompt())
	}))
	defer srv.Close()
	for _, prompt := range []string{"one", "two"} {
		resp, err := srv.Client().New(context.Background(), ask(prompt))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.OutputText())
	}
	// Output:
	// You said: one
	// You said: two
}

// Every conversation plays the same replies from the first on.
func ExamplePerConversation() {
	srv := responsestest.NewServer(responsestest.PerConversation(
		responsestest.Call("", "add", `{"a":2,"b":3}`),
		responsestest.Text("5"),
	))
	defer srv.Close()
	for range 2 {
		text, err := runConversation(context.Background(), srv, "What is 2 and 3?")
		fmt.Println(text, err)
	}
	// Output:
	// 5 <nil>
	// 5 <nil>
}
