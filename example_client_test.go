package fnloop_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
)

// A whole program that asks OpenAI's service. It needs a key, so it is not run
// here.
func Example_openAI() {
	type place struct {
		City string `json:"city" jsonschema_description:"Name of the city, in English."`
	}
	type weather struct {
		Celsius int    `json:"celsius"`
		Sky     string `json:"sky"`
	}
	forecast := fnloop.MustTool("forecast", "Tomorrow's weather in one city.",
		func(ctx context.Context, in place) (weather, error) {
			return weather{Celsius: -4, Sky: "snow"}, nil
		})

	client := responses.NewResponseService(
		option.WithEnvironmentProduction(),
		option.WithAPIKey(os.Getenv("OPENAI_API_KEY")),
	)
	loop := &fnloop.Loop{Client: &client, Model: "gpt-6-astra", Tools: []fnloop.Tool{forecast}}
	answer, err := loop.Run(context.Background(), "Do I need boots in Oslo tomorrow?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
}
