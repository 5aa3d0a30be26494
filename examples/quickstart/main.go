// Command quickstart is the program of the README: it asks a model, which
// answers by running Python in a local sandbox.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func main() {
	url := cmp.Or(os.Getenv("OPENAI_BASE_URL"), "https://api.openai.com/v1")
	client := responses.NewResponseService(option.WithBaseURL(url), option.WithAPIKey(os.Getenv("OPENAI_API_KEY")))
	loop := &fnloop.Loop{
		Client: &client,
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{fnloop.PythonTool(&bubblewrap.Runner{}, fnloop.Limits{})},
	}
	answer, err := loop.Run(context.Background(), "What is the 40th Fibonacci number? Compute it.")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
}
