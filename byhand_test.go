package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// byHand is the loop that openai-go's documents lead to.
func byHand(ctx context.Context, client *responses.ResponseService, tools []responses.ToolUnionParam, prompt string) (string, error) {
	params := byHandParams(tools, prompt)
	for {
		res, err := client.New(ctx, params)
		if err != nil {
			return "", err
		}
		if !byHandCalls(ctx, res, &params) {
			return res.OutputText(), nil
		}
	}
}

// byHandStreamed is byHand with the stream of openai-go: text is shown as it comes,
// and the event that ends the stream has the response with the calls.
func byHandStreamed(ctx context.Context, client *responses.ResponseService, tools []responses.ToolUnionParam, prompt string, show func(string)) error {
	params := byHandParams(tools, prompt)
	for {
		var res *responses.Response
		stream := client.NewStreaming(ctx, params)
		for stream.Next() {
			switch e := stream.Current(); e.Type {
			case "response.output_text.delta":
				show(e.Delta)
			case "response.completed":
				res = &e.Response
			}
		}
		if err := stream.Err(); err != nil {
			return err
		}
		if res == nil {
			return io.ErrUnexpectedEOF
		}
		if !byHandCalls(ctx, res, &params) {
			return nil
		}
	}
}

func byHandTools(b *testing.B) []responses.ToolUnionParam {
	b.Helper()
	var schema map[string]any
	if err := json.Unmarshal(adder().Parameters, &schema); err != nil {
		b.Fatal(err)
	}
	return []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: "add", Description: param.NewOpt("Adds two integers."), Parameters: schema, Strict: param.NewOpt(true),
	}}}
}

func byHandParams(tools []responses.ToolUnionParam, prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-test", Instructions: param.NewOpt("Be brief."), Tools: tools,
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(prompt)},
	}
}

// byHandCalls runs the calls of a response and makes the outputs the next input.
// It reports false if there are none.
func byHandCalls(ctx context.Context, res *responses.Response, params *responses.ResponseNewParams) bool {
	var calls []responses.ResponseFunctionToolCall
	for _, item := range res.Output {
		if item.Type == "function_call" {
			calls = append(calls, item.AsFunctionCall())
		}
	}
	if len(calls) == 0 {
		return false
	}
	outputs := make([]responses.ResponseInputItemUnionParam, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			outputs[i].OfFunctionCallOutput = &responses.ResponseInputItemFunctionCallOutputParam{
				CallID: param.NewOpt(call.CallID),
				Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: param.NewOpt(byHandAdd(ctx, call.Arguments))},
			}
		})
	}
	wg.Wait()
	params.PreviousResponseID = param.NewOpt(res.ID)
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: outputs}
	return true
}

// byHandAdd answers a call of the tool.
func byHandAdd(ctx context.Context, arguments string) string {
	var in addInput
	if err := json.Unmarshal([]byte(arguments), &in); err != nil {
		return err.Error()
	}
	sum, err := add(ctx, in)
	if err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(sum)
	return string(b)
}

// byNetHTTP is byHand without a client: structs of what it sends and reads, and
// nothing is checked, retried or bounded.
func byNetHTTP(ctx context.Context, client *http.Client, url string, schema json.RawMessage, prompt string) (string, error) {
	type tool struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	}
	type input struct {
		Type    string `json:"type,omitempty"`
		Role    string `json:"role,omitempty"`
		Content string `json:"content,omitempty"`
		CallID  string `json:"call_id,omitempty"`
		Output  string `json:"output,omitempty"`
	}
	request := struct {
		Model        string  `json:"model"`
		Instructions string  `json:"instructions"`
		Tools        []tool  `json:"tools"`
		Input        []input `json:"input"`
		Previous     string  `json:"previous_response_id,omitempty"`
	}{
		Model: "gpt-test", Instructions: "Be brief.", Input: []input{{Role: "user", Content: prompt}},
		Tools: []tool{{"function", "add", "Adds two integers.", schema, true}},
	}
	for {
		var response struct {
			ID     string
			Output []struct {
				Type, Arguments string
				CallID          string `json:"call_id"`
				Content         []struct{ Text string }
			}
		}
		if err := postJSON(ctx, client, url, request, &response); err != nil {
			return "", err
		}
		var text strings.Builder
		var outputs []input
		for _, it := range response.Output {
			for _, part := range it.Content {
				text.WriteString(part.Text)
			}
			if it.Type == "function_call" {
				outputs = append(outputs, input{Type: "function_call_output", CallID: it.CallID, Output: it.Arguments})
			}
		}
		if outputs == nil {
			return text.String(), nil
		}
		var wg sync.WaitGroup
		for i := range outputs {
			wg.Go(func() { outputs[i].Output = byHandAdd(ctx, outputs[i].Output) })
		}
		wg.Wait()
		request.Input, request.Previous = outputs, response.ID
	}
}

func postJSON(ctx context.Context, client *http.Client, url string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer test")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, body)
	}
	return json.Unmarshal(body, response)
}
