package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/fnloop/fnloop/responsestest"
)

// What the scripted model writes. Figures need matplotlib; without it a chart is
// made by hand.
const (
	loadCode = `import csv, glob
name = max(glob.glob("*.csv"))
rows = list(csv.DictReader(open(name)))
columns = list(rows[0])
print(f"{name}: {len(rows)} rows, columns {', '.join(columns)}")
rows[:3]`
	chartCode = `label = columns[0]
value = next(c for c in columns[1:] if rows[0][c].replace(".", "", 1).isdigit())
names, numbers = [r[label] for r in rows], [float(r[value]) for r in rows]
try:
    import matplotlib.pyplot as plt
    plt.figure(figsize=(6, 3))
    plt.bar(names, numbers, color="#2f6f6a")
    plt.title(f"{value} by {label}")
    plt.tight_layout()
    plt.show()
except ImportError:
    class Chart:
        def _repr_svg_(self):
            w, top = 560 / len(numbers), max(numbers)
            bars = "".join(f'<rect x="{i * w + 6}" y="{200 - n / top * 180}" width="{w - 12}" height="{n / top * 180}" fill="#2f6f6a"/>'
                           f'<text x="{i * w + 8}" y="218" font-size="12">{names[i][:12]}</text>' for i, n in enumerate(numbers))
            return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 225">{bars}</svg>'
    display(Chart())`
	sumCode = `total = sum(numbers)
with open("summary.txt", "w") as f:
    f.write(f"{len(numbers)} rows, total {total:g}, mean {total / len(numbers):.2f}\n")
print(open("summary.txt").read(), end="")`
	slowCode = `import time
found = []
for n in range(2, 200):
    if all(n % p for p in found):
        found.append(n)
        print(n, end=" ", flush=True)
        time.sleep(0.25)
len(found)`
)

const help = "I am a scripted model, so that this page can be tried without a key. I know a few things:\n\n" +
	"- Attach a **CSV file** and ask for a *chart*, then for the *total* of the same data.\n" +
	"- Ask for *primes* and watch the program print, stop it, or reload the page.\n" +
	"- Ask for the *orders* of Mina, or for a *refund* of order A-1002, which you have to approve.\n" +
	"- Attach a **picture**.\n\n" +
	"With `OPENAI_API_KEY` set, a real model answers."

// script is a model that knows what to do by words of the prompt, and for the rest
// of a run by what came of its calls.
func script() responsestest.Reply {
	return responsestest.Always(func(t *responsestest.Turn) responsestest.Reply {
		reply := react(t)
		reply.Pause = 25 * time.Millisecond
		return reply
	})
}

var orderID = regexp.MustCompile(`[A-Z]-\d{4}`)

func react(t *responsestest.Turn) responsestest.Reply {
	say, prompt := responsestest.Text, strings.ToLower(t.Prompt())
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(prompt, w) {
				return true
			}
		}
		return false
	}
	python := func(code string) responsestest.Reply {
		arguments, _ := json.Marshal(map[string]string{"code": code})
		return responsestest.Join(responsestest.Commentary("I run a program for that."), responsestest.Call("", "python", string(arguments)))
	}
	outputs := outputsSincePrompt(t)
	last := ""
	if len(outputs) > 0 {
		last = outputs[len(outputs)-1]
	}
	failed := strings.Contains(last, `"status":"error"`) || strings.Contains(last, "sandbox failed")
	switch {
	case has("chart", "plot", "csv") && len(outputs) == 0:
		return python(loadCode)
	case has("chart", "plot", "csv") && len(outputs) == 1 && !failed:
		return python(chartCode)
	case has("chart", "plot", "csv") && !failed:
		return say("Here is the chart. The data stays loaded: ask for the *total* next.")
	case has("total", "sum", "mean") && len(outputs) == 0:
		return python(sumCode)
	case has("total", "sum", "mean") && strings.Contains(last, "NameError") && len(outputs) == 1:
		return python(loadCode + "\n" + chartCode[:strings.Index(chartCode, "try:")] + sumCode)
	case has("total", "sum", "mean") && !failed:
		return say("I have written the result to `summary.txt`, which you can download.")
	case has("prime", "slow") && len(outputs) == 0:
		return python(slowCode)
	case has("prime", "slow") && !failed:
		return say("These are the primes below 200, one after another: " + excerpt(last))
	case has("refund") && len(outputs) == 0:
		return responsestest.Call("", "refund", fmt.Sprintf(`{"order":%q}`, orderID.FindString(t.Prompt()+" A-1002")))
	case has("refund"):
		return say("The answer to the refund was: " + excerpt(last))
	case has("order") && len(outputs) == 0:
		return responsestest.Join(responsestest.Call("", "orders", `{"customer":"mina"}`), responsestest.Call("", "orders", `{"customer":"jonas"}`))
	case has("order"):
		return say("Mina has two orders and Jonas has one:\n\n```\n" + strings.Join(outputs, "\n") + "\n```")
	case failed:
		return say("The program failed: " + excerpt(last))
	case strings.Contains(fmt.Sprintf("%s", t.New), `"input_image"`):
		return say("I see that you have sent a picture. I am only a script and cannot tell what is on it.")
	}
	return say(help)
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
