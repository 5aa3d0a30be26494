package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fnloop/fnloop/fixtures"
	"github.com/fnloop/fnloop/responsestest"
)

// A figure is shown by terminals that can; of any other the user gets the file's
// path, and the picture is in the file.
func TestFigures(t *testing.T) {
	needSandbox(t)
	recording, err := filepath.Abs("../../fixtures/sales.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("../../fixtures/sales.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, env, shown string }{
		{"kitty", "TERM=xterm-kitty", `\x1b_Gf=100,a=T,q=2,m=[01];iVBORw0KGgo`},
		{"iTerm2", "TERM_PROGRAM=iTerm.app", `\x1b\]1337;File=inline=1;size=\d+:iVBORw0KGgo`},
		{"sixel", "TERM=foot", `\x1bPq"1;1;360;220#0;2;`},
		{"none", "TERM=xterm", `python: wrote \S+/figure-1\.png\r\n`},
		{"dumb", "TERM=dumb", `python: wrote \S+/figure-1\.png\r\n`},
	} {
		t.Run(test.name, func(t *testing.T) {
			temp := t.TempDir()
			x := onTerminal(t, &responsestest.Server{Key: "none"}, "askpy --runner bubblewrap --replay "+recording+" --file "+data+" '"+fixtures.SalesPrompt+"'", "TMPDIR="+temp, "OPENAI_BASE_URL=", test.env)
			shown := x.expect(test.shown)
			x.expect(`Porto sells the most`)
			x.end(0)
			file := regexp.MustCompile(`\S+/figure-1\.png`).FindString(shown)
			if left, _ := filepath.Glob(filepath.Join(temp, "askpy-*", "*")); len(left) > 0 != (file != "") {
				t.Errorf("%q is shown of %q", file, left)
			}
			if picture, err := os.ReadFile(file); file != "" && (err != nil || string(picture[1:4]) != "PNG") {
				t.Errorf("%s holds no picture: %v", file, err)
			}
		})
	}
}
