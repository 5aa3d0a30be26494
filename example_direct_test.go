package fnloop_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fnloop/fnloop"
)

// A tool can be called without a model, as a test of it does.
func ExampleLoop_Call() {
	type place struct {
		City string `json:"city"`
	}
	weather := fnloop.MustTool("weather", "Tomorrow's weather in a city.", func(_ context.Context, in place) (string, error) {
		return "sun in " + in.City, nil
	})
	loop := &fnloop.Loop{Tools: []fnloop.Tool{weather}}
	for _, args := range []string{`{"city":"Lisbon"}`, `{"town":"Lisbon"}`} {
		result, err := loop.Call(context.Background(), fnloop.Call{Name: "weather", Arguments: json.RawMessage(args)}, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.IsError, result.Text)
	}
	// Output:
	// false sun in Lisbon
	// true arguments: unknown key "town" (known keys are "city"); city: missing (expected string)
}
