package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/fnloop/fnloop/responsestest"
)

//go:embed script
var scripts embed.FS

var (
	aboutData   = regexp.MustCompile(`(?i)chart|plot|csv`)
	aboutTotal  = regexp.MustCompile(`(?i)total|sum|mean`)
	aboutPrimes = regexp.MustCompile(`(?i)prime`)
	aboutRefund = regexp.MustCompile(`(?i)refund`)
	aboutOrders = regexp.MustCompile(`(?i)order`)
	orderID     = regexp.MustCompile(`[A-Z]-\d{4}`)
)

// script is a model that knows what to do by words of the prompt, and for the rest
// of a run by what came of its calls.
func script(t *responsestest.Turn) responsestest.Reply {
	reply := react(t)
	reply.Pause = 25 * time.Millisecond
	return reply
}

func react(t *responsestest.Turn) responsestest.Reply {
	prompt, outputs := t.Prompt(), outputsSincePrompt(t)
	last := ""
	if len(outputs) > 0 {
		last = outputs[len(outputs)-1]
	}
	has := func(about *regexp.Regexp) bool { return about.MatchString(prompt) }
	say := responsestest.Text
	first := len(outputs) == 0
	switch {
	case strings.Contains(last, "No module named 'matplotlib'"):
		return python("There is no matplotlib here, so I draw by hand.", "drawn.py")
	case strings.Contains(last, "NameError") && len(outputs) == 1:
		return python("The variables are gone; I read the file again.", "load.py", "total.py")
	case strings.Contains(last, `"status":"error"`), strings.Contains(last, "sandbox failed"):
		return say("The program failed:\n\n```\n" + excerpt(last) + "\n```")
	case has(aboutData) && first:
		return python("I look at the file first.", "load.py")
	case has(aboutData) && len(outputs) == 1:
		return python("Now the chart.", "chart.py")
	case has(aboutData):
		return say("Here is the chart. The data stays loaded: ask for the *total* next.")
	case has(aboutTotal) && first:
		return python("The data is still there.", "total.py")
	case has(aboutTotal):
		return say("I have written the result to `summary.txt`, which you can download.")
	case has(aboutPrimes) && first:
		return python("I run a program for that.", "primes.py")
	case has(aboutPrimes):
		return say("These are the primes below 200, one after another: " + excerpt(last))
	case has(aboutRefund) && first:
		return responsestest.Call("", "refund", fmt.Sprintf(`{"order":%q}`, orderID.FindString(prompt+" A-1002")))
	case has(aboutRefund):
		return say("The answer to the refund was: " + excerpt(last))
	case has(aboutOrders) && first:
		return responsestest.Join(responsestest.Call("", "orders", `{"customer":"mina"}`), responsestest.Call("", "orders", `{"customer":"jonas"}`))
	case has(aboutOrders):
		return say("Mina has two orders and Jonas has one:\n\n```\n" + strings.Join(outputs, "\n") + "\n```")
	case strings.Contains(fmt.Sprintf("%s", t.New), `"input_image"`):
		return say("I see that you have sent a picture. I am only a script and cannot tell what is on it.")
	}
	return say(source("help.md"))
}

func source(name string) string {
	b, err := scripts.ReadFile("script/" + name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return strings.TrimSpace(string(b))
}

// python is a call that runs files of the script.
func python(why string, names ...string) responsestest.Reply {
	var code []string
	for _, name := range names {
		code = append(code, source(name))
	}
	arguments, _ := json.Marshal(map[string]string{"code": strings.Join(code, "\n")})
	return responsestest.Join(responsestest.Commentary(why), responsestest.Call("", "python", string(arguments)))
}

// outputsSincePrompt are the outputs of calls after the user's last message.
func outputsSincePrompt(t *responsestest.Turn) (outputs []string) {
	for _, raw := range t.Input {
		var item struct {
			Role   string `json:"role"`
			Type   string `json:"type"`
			CallID string `json:"call_id"`
		}
		if json.Unmarshal(raw, &item) != nil {
			continue
		}
		if item.Role == "user" {
			outputs = nil
		} else if item.Type == "function_call_output" {
			text, _ := t.Output(item.CallID)
			outputs = append(outputs, text)
		}
	}
	return outputs
}

func excerpt(text string) string {
	const most = 300
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
