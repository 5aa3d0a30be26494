package fnloop_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

type userKey struct{}

// A user is who asks, as your program knows them.
type user struct {
	name  string
	admin bool
	model string
}

// One Loop serves all users. The context says who asks: a handler reads it, and
// BeforeRequest makes each request fit the user. A copy of the Loop has tools of
// its own.
func Example_users() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "whoami", `{}`),
		responsestest.Text("You are Ada."),
		responsestest.Text("I cannot do that."),
	)
	defer srv.Close()

	whoami := fnloop.MustTool("whoami", "Says who the user is.",
		func(ctx context.Context, _ struct{}) (string, error) {
			return ctx.Value(userKey{}).(user).name, nil
		})
	wipe := fnloop.MustTool("wipe", "Removes everything.",
		func(context.Context, struct{}) (string, error) { return "done", nil })
	base := fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{whoami},
		BeforeRequest: func(ctx context.Context, p *responses.ResponseNewParams) error {
			u := ctx.Value(userKey{}).(user)
			p.SafetyIdentifier = param.NewOpt(u.name)
			if u.model != "" {
				p.Model = u.model
			}
			return nil
		},
	}
	admins := base
	admins.Tools = []fnloop.Tool{whoami, wipe}

	run := func(u user, prompt string) {
		loop := &base
		if u.admin {
			loop = &admins
		}
		answer, err := loop.Run(context.WithValue(context.Background(), userKey{}, u), prompt)
		fmt.Println(answer.Text, err)
	}
	run(user{name: "Ada", admin: true}, "Who am I?")
	run(user{name: "Bob", model: "gpt-6-mini"}, "Wipe the disk.")

	for _, r := range srv.Requests() {
		var sent struct {
			Model string     `json:"model"`
			User  string     `json:"safety_identifier"`
			Tools []struct{} `json:"tools"`
		}
		if err := json.Unmarshal(r.Body, &sent); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(sent.User, sent.Model, len(sent.Tools))
	}
	// Output:
	// You are Ada. <nil>
	// I cannot do that. <nil>
	// Ada gpt-6-astra 2
	// Ada gpt-6-astra 2
	// Bob gpt-6-mini 1
}
