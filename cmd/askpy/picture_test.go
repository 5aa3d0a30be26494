package main_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/fnloop/fnloop/cmd/askpy/internal/screen"
	"github.com/fnloop/fnloop/fixtures"
	"github.com/fnloop/fnloop/responsestest"
)

var picturesDir = flag.String("pictures", "", "write the pictures of the documentation into the folder `DIR` in place of comparing them")

// totalCell goes on with what the conversation about sales has left.
const totalCell = `sum(totals.values())`

// pictures are those of the documentation. What they show is what askpy shows of the
// conversations in fixtures: the model's words are written there, and its programs
// run.
var pictures = []struct {
	file, title string
	command     string // as a user types it
	keys        []struct{ after, text string }
	model       func(*testing.T) []responsestest.Reply
	last        string // what is shown at the end
}{
	{
		file: "askpy.svg", title: "askpy answers a question about a file with Python and draws a chart in the terminal",
		command: `askpy --file sales.csv "` + fixtures.SalesPrompt + `"`,
		model:   conversations[1].model,
		last:    `the numbers\.\r\n`,
	},
	{
		file: "askpy-chat.svg", title: "a chat with askpy in which Python's variables stay",
		command: "askpy chat",
		keys: []struct{ after, text string }{
			{`> `, "/file sales.csv\r"},
			{`for the Python interpreter\r\n[^>]*> `, "Which city sells the most?\r"},
			{`Porto\S* sells the most[^>]*> `, "And how many units is that in all?\r"},
			{`in all\.[^>]*> `, "/undo\r"},
			{`took back[^>]*> `, "\x04"},
		},
		model: func(t *testing.T) []responsestest.Reply {
			return []responsestest.Reply{
				says(t, 1, "python", loadCell), says(t, 2, "python", sumCell),
				responsestest.Text("**Porto** sells the most:\n\n| city | units |\n|------|------:|\n| Porto | 731 |\n| Oslo | 561 |\n| Quito | 439 |\n"),
				says(t, 3, "python", totalCell), responsestest.Text("It is **1731** units in all."),
			}
		},
		last: `goes on with this chat\r\n`,
	},
}

// TestPictures makes the pictures of the documentation again and compares them with
// those in docs.
func TestPictures(t *testing.T) {
	needSandbox(t)
	for _, p := range pictures {
		t.Run(p.file, func(t *testing.T) {
			server := responsestest.NewServer(p.model(t)...)
			defer server.Close()
			data, err := os.ReadFile("../../fixtures/sales.csv")
			if err != nil {
				t.Fatal(err)
			}
			const columns = 92
			x := onTerminal(t, server, "stty cols 92 rows 40; "+p.command, "TERM=xterm-kitty", "ASKPY_HOME="+t.TempDir())
			if err := os.WriteFile(filepath.Join(x.cmd.Dir, "sales.csv"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			shown := ""
			for _, k := range p.keys {
				shown += x.expect(k.after)
				x.send(k.text)
			}
			shown += x.expect(p.last) + x.end(0)
			s := screen.New(columns)
			if err := s.Write("\x1b[32m$\x1b[39m " + p.command + "\r\n" + shown); err != nil {
				t.Fatal(err)
			}
			got := s.SVG(p.title)
			if *picturesDir != "" {
				if err := os.WriteFile(filepath.Join(*picturesDir, p.file), []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(filepath.Join("../../docs", p.file))
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("docs/%s is not what askpy shows now; if that is meant, run make screenshots\n%s", p.file, firstDifference(got, string(want)))
			}
		})
	}
}
