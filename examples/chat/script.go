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

var orderID = regexp.MustCompile(`[A-Z]-\d{4}`)

// script is a model that knows what to do by words of the prompt, and for the rest
// of a run by what came of its calls.
func script(t *responsestest.Turn) responsestest.Reply {
	reply := react(t)
	reply.Pause = 25 * time.Millisecond
	return reply
}

func react(t *responsestest.Turn) responsestest.Reply {
	prompt, outputs, last := t.Prompt(), t.Outputs(), ""
	first := len(outputs) == 0
	if !first {
		last = outputs[len(outputs)-1]
	}
	about := func(words string) bool { return regexp.MustCompile("(?i)" + words).MatchString(prompt) }
	say := responsestest.Text
	switch {
	case strings.Contains(last, "No module named 'matplotlib'"):
		return python("There is no matplotlib here, so I draw by hand.", "drawn.py")
	case strings.Contains(last, "NameError") && len(outputs) == 1:
		return python("The variables are gone; I read the file again.", "load.py", "total.py")
	case strings.Contains(last, `"status":"error"`), strings.Contains(last, "sandbox failed"):
		return say("The program failed:\n\n```\n" + excerpt(last) + "\n```")
	case about("chart|plot|csv") && first:
		return python("I look at the file first.", "load.py")
	case about("chart|plot|csv") && len(outputs) == 1:
		return python("Now the chart.", "chart.py")
	case about("chart|plot|csv"):
		return say("Here is the chart. The data stays loaded: ask for the *total* next.")
	case about("total|sum|mean") && first:
		return python("The data is still there.", "total.py")
	case about("total|sum|mean"):
		return say("I have written the result to `summary.txt`, which you can download.")
	case about("prime") && first:
		return python("I run a program for that.", "primes.py")
	case about("prime"):
		return say("These are the primes below 200, one after another: " + excerpt(last))
	case about("refund") && first:
		return responsestest.Call("", "refund", fmt.Sprintf(`{"order":%q}`, orderID.FindString(prompt+" A-1002")))
	case about("refund"):
		return say("The answer to the refund was: " + excerpt(last))
	case about("order") && first:
		return responsestest.Join(responsestest.Call("", "orders", `{"customer":"mina"}`), responsestest.Call("", "orders", `{"customer":"jonas"}`))
	case about("order"):
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

func excerpt(text string) string { return fmt.Sprintf("%.300s", text) }
