//go:build linux

package bubblewrap_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// hellos print "hi".
var hellos = map[string]string{
	fnloop.LanguageBash:       "echo hi",
	fnloop.LanguageJavaScript: "console.log('hi')",
	fnloop.LanguageTypeScript: "const s: string = 'hi'; console.log(s)",
	fnloop.LanguageR:          `cat("hi\n")`,
	fnloop.LanguageJava:       `class A { public static void main(String[] a) { System.out.println("hi"); } }`,
	fnloop.LanguageGo:         "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hi\") }",
}

// BenchmarkLanguages compares a call that makes its sandbox with the same commands
// without one.
func BenchmarkLanguages(b *testing.B) {
	r := open(b, new(bubblewrap.Runner))
	env, err := r.Inspect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var f language.Finder
	host, err := f.Find(b.Context(), func(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
		out, err := exec.CommandContext(ctx, "python3", "-c", p.Source).Output()
		return fnloop.Result{ExitCode: new(int), Stdout: string(out)}, err
	}, language.GoCache)
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range env.Languages {
		source, ok := hellos[l.Name]
		if !ok || !host.Has(l.Name) {
			continue
		}
		b.Run(l.Name, func(b *testing.B) {
			p := fnloop.Program{Source: source, Language: l.Name}
			without := withoutSandbox(b, host, p)
			without() // fills the cache of Go
			compare(b, func() {
				res, err := r.Run(context.Background(), p)
				if err != nil || res.Stdout != "hi\n" {
					b.Fatalf("Run() = %s, %v", res.Text(), err)
				}
			}, without, 0)
		})
	}
}

// withoutSandbox runs the commands of a program in a folder of this machine.
func withoutSandbox(b *testing.B, host language.Set, p fnloop.Program) func() {
	b.Helper()
	c, err := host.Command(p, bubblewrap.DefaultMemory)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	here := func(s string) string { return strings.ReplaceAll(s, "/tmp/", dir+"/") }
	n := 0
	return func() {
		source := p.Source
		if n++; p.Language == fnloop.LanguageGo { // which would not compile it again
			source += fmt.Sprintf("// %d\n", n)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(c.File)), []byte(source), 0o644); err != nil {
			b.Fatal(err)
		}
		var out []byte
		for _, step := range c.Steps {
			args := make([]string, len(step))
			for i := range step {
				args[i] = here(step[i])
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = dir
			cmd.Env = append(append(os.Environ(), c.Env...), "GOCACHE="+dir+"/cache")
			if out, err = cmd.Output(); err != nil {
				b.Fatal(err)
			}
		}
		if string(out) != "hi\n" {
			b.Fatalf("%q", out)
		}
	}
}
