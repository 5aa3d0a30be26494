package fnloop_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fnloop/fnloop/internal/version"
)

const module = "github.com/fnloop/fnloop"

// openai are the parts of openai-go that a library package may import. Its root
// package is not among them: it doubles the size of a program and more than
// doubles the time to build one.
var openai = []string{
	"github.com/openai/openai-go/v3/conversations",
	"github.com/openai/openai-go/v3/option",
	"github.com/openai/openai-go/v3/packages/...",
	"github.com/openai/openai-go/v3/responses",
	"github.com/openai/openai-go/v3/shared",
}

// mayImport says what the files of a package that users' programs are linked
// with may import beside the standard library. The first pattern that matches
// counts. A package needs a line here; a line needs a reason to grow.
var mayImport = []struct {
	pkg  string
	list []string
}{
	{".", slices.Concat(openai, []string{"./internal/sse", "./internal/excerpt", "./internal/strict", "github.com/invopop/jsonschema"})},
	{"internal/strict", []string{"./internal/excerpt", "github.com/invopop/jsonschema"}},
	{"internal/...", []string{".", "./internal/...", "./interpreter", "golang.org/x/sys/..."}},
	{"responsestest", slices.Concat(openai, []string{"github.com/coder/websocket"})}, // not the root, whose tests use it
	{"aisdk", []string{".", "./internal/uistream"}},
	{"agui", []string{".", "./internal/uistream"}},
	{"mcptool", []string{".", "./internal/version", "github.com/modelcontextprotocol/go-sdk/...", "golang.org/x/sys/..."}},
	{"otelloop", slices.Concat(openai, []string{".", "go.opentelemetry.io/otel/...", "go.opentelemetry.io/otel"})},
	{"interpreter", []string{".", "./internal/excerpt", "./internal/relay"}},
	{"chatstore", []string{".", "./interpreter"}},          // and no driver of a database
	{"runners/runnertest", []string{".", "./interpreter"}}, // a stranger's runner inherits nothing
	{"runners/fake", []string{".", "./internal/relay", "./interpreter"}},
	{"runners/bubblewrap", []string{".", "./internal/...", "./interpreter", "golang.org/x/sys/..."}},
	{"runners/docker", []string{
		".", "./internal/...", "./interpreter", "golang.org/x/sys/...",
		"github.com/containerd/errdefs", "github.com/moby/moby/api/...", "github.com/moby/moby/client",
	}},
	{"runners/runtimecloud", []string{".", "./internal/...", "./interpreter"}},
	{"runners/runtimecloud/runtimetest", []string{".", "./interpreter"}},
	{"fixtures", nil},
	// Only programs put drivers and the loop together.
	{"cmd/...", slices.Concat(openai, []string{
		"./...", "github.com/spf13/pflag", "go.yaml.in/yaml/v4", "golang.org/x/sys/...", "golang.org/x/term", "gopkg.in/dnaeon/go-vcr.v4/...",
		"github.com/reeflective/readline", "github.com/rivo/uniseg", "github.com/modelcontextprotocol/go-sdk/mcp",
	})},
	{"examples/...", slices.Concat(openai, []string{"./..."})},
}

// testsMayImport is what test files may import beyond their package's list.
var testsMayImport = slices.Concat(openai, []string{
	"./...",
	"github.com/coder/websocket",
	"github.com/invopop/jsonschema",
	"github.com/rogpeppe/go-internal/...",
	"github.com/santhosh-tekuri/jsonschema/v6",
	"github.com/stretchr/testify/assert",
	"go.opentelemetry.io/otel/...",
	"github.com/modelcontextprotocol/go-sdk/mcp",
	"github.com/stretchr/testify/require",
	"go.uber.org/goleak",
	"golang.org/x/sys/...",
	"gopkg.in/dnaeon/go-vcr.v4/...",
})

// matches reports whether a path is one of the patterns, as go list has them.
func matches(p string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
			return p == prefix || strings.HasPrefix(p, prefix+"/")
		}
		return p == pattern
	})
}

// A source is a Go file of the module.
type source struct {
	*ast.File
	name string // slash-separated, from the module's root
	text []byte
}

func (s source) pkg() string  { return path.Dir(s.name) }
func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// fset has the positions of all sources.
var fset = token.NewFileSet()

// files gives the names of the module's files, from its root.
func files(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (base == ".git" || base == ".cache" || base == "bin" || base == "dist" || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		names = append(names, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		text := read(t, name)
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{f, name, text})
	}
	return all
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ofOtherModule reports whether a file is of a module of its own, whose imports
// reach nobody who imports this one.
func ofOtherModule(f source) bool {
	for dir := f.pkg(); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(filepath.FromSlash(dir), "go.mod")); err == nil {
			return true
		}
	}
	return false
}

func TestStructure_imports(t *testing.T) {
	for _, f := range sources(t) {
		if ofOtherModule(f) {
			continue
		}
		list := []string(nil)
		i := slices.IndexFunc(mayImport, func(m struct {
			pkg  string
			list []string
		},
		) bool {
			return matches(f.pkg(), m.pkg)
		})
		if i < 0 {
			t.Errorf("%s: package %s has no line in mayImport", f.name, f.pkg())
			continue
		}
		list = mayImport[i].list
		if f.isTest() {
			list = slices.Concat(list, testsMayImport)
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if imported == "testing" && !f.isTest() && !strings.HasSuffix(f.pkg(), "test") {
				t.Errorf("%s: imports testing, which would be linked into users' programs", f.name)
			}
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			p := imported
			if rest, ours := strings.CutPrefix(imported, module); ours {
				p = "." + rest
			}
			if !matches(p, list...) {
				t.Errorf("%s: may not import %s", f.name, imported)
			}
		}
	}
}

func TestStructure_packageComments(t *testing.T) {
	comments := make(map[string][]string)
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		if _, ok := comments[f.pkg()]; !ok {
			comments[f.pkg()] = nil
		}
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			comments[f.pkg()] = append(comments[f.pkg()], f.name)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(comments)) {
		if in := comments[pkg]; len(in) != 1 {
			t.Errorf("package %s has %d package comments, want one: %q", pkg, len(in), in)
		}
	}
}

// Methods whose whole meaning is their interface's need no comment.
var plainMethods = []string{"Error", "Unwrap", "String"}

func TestStructure_exportedNamesHaveComments(t *testing.T) {
	for _, f := range sources(t) {
		if f.isTest() || f.Name.Name == "main" {
			continue
		}
		missing := func(pos token.Pos, name string) {
			t.Errorf("%v: %s has no comment", fset.Position(pos), name)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() || d.Doc != nil {
					continue
				}
				if d.Recv != nil && (!ast.IsExported(receiver(d)) || slices.Contains(plainMethods, d.Name.Name)) {
					continue
				}
				missing(d.Pos(), d.Name.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
							missing(s.Pos(), s.Name.Name)
						}
					case *ast.ValueSpec:
						if s.Names[0].IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
							missing(s.Pos(), s.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

// receiver is the name of the type that a method is of.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// Errors that no run ends with: they are in a CallResult, within a StreamError,
// the cause of a context's end, or of what is called beside a run.
var endNoRun = []string{
	"ErrUnknownTool", "ErrUnavailable", "ErrIncompleteStream", "ErrIdleStream", "ErrNoRun", "ErrDraining",
	"*ArgumentsError", "*PackageError", "*PanicError", "*ProgramError", "*RunnerError", "*SchemaError",
}

// The table in stop.go says which error a StopReason stands for. The comments of
// the constants say the same, and no exported error is left out.
func TestStructure_stopReasons(t *testing.T) {
	comments := make(map[string]string) // of the constants
	named := make(map[string]bool)      // the errors of the table
	rows := make(map[string]int)        // of the table, by constant
	var exported []string
	for _, f := range sources(t) {
		if f.pkg() != "." || f.isTest() {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if ast.IsExported(n.Name.Name) && strings.HasSuffix(n.Name.Name, "Error") {
					exported = append(exported, "*"+n.Name.Name)
				}
			case *ast.ValueSpec:
				name := n.Names[0].Name
				if strings.HasPrefix(name, "Err") {
					exported = append(exported, name)
				}
				if typ, ok := n.Type.(*ast.Ident); ok && typ.Name == "StopReason" {
					comments[name] = n.Comment.Text()
				}
			}
			return true
		})
	}
	for _, f := range sources(t) {
		if f.name != "stop.go" {
			continue
		}
		row := regexp.MustCompile(`\{(Stop\w+), (?:typed\[(\*\w+)\]|wraps\((\w+)\)|endedBy\(([\w.]+)\))\}`)
		for _, m := range row.FindAllStringSubmatch(string(f.text), -1) {
			reason, err := m[1], m[2]+m[3]+m[4]
			if rows[reason]++; comments[reason] == "" {
				t.Errorf("%s of the table is no constant with a comment", reason)
			}
			named[err] = true
			if !ast.IsExported(strings.TrimPrefix(err, "*")) && !strings.Contains(err, ".") {
				continue
			}
			if c := comments[reason]; !strings.HasPrefix(c, err+":") && !strings.HasPrefix(c, err+",") {
				t.Errorf("the comment of %s is %q, want one that begins with %s", reason, c, err)
			}
		}
	}
	for name := range comments {
		if rows[name] == 0 && name != "StopAnswered" {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, name := range exported {
		if named[name] == slices.Contains(endNoRun, name) {
			t.Errorf("%s: want it either in the table or in endNoRun", name)
		}
	}
	for _, name := range endNoRun {
		if !slices.Contains(exported, name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// What is not done is said in docs/rough-edges.md, where a user can read it.
func TestStructure_nothingLeftToDo(t *testing.T) {
	words := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|TB` + `D|X` + `XX)\b`)
	kinds := []string{".go", ".md", ".py", ".yml", ".yaml", ".sh", ".mod", ".txtar"}
	for _, name := range files(t) {
		if !slices.Contains(kinds, path.Ext(name)) && name != "Makefile" && name != ".ci/run" {
			continue
		}
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			if w := words.FindString(line); w != "" {
				t.Errorf("%s:%d: %s", name, i+1, w)
			}
		}
	}
}

func TestStructure_changelogHasUnreleased(t *testing.T) {
	if !bytes.Contains(read(t, "CHANGELOG.md"), []byte("\n## [Unreleased]\n")) {
		t.Error("CHANGELOG.md has no section Unreleased")
	}
}

// The version is said in one place and repeated where people look.
func TestStructure_version(t *testing.T) {
	for name, want := range map[string]string{
		"CHANGELOG.md":     "\n## [" + version.Version + "] - ",
		"docs/versions.md": "The current version is " + version.Version + ".",
	} {
		if !bytes.Contains(read(t, name), []byte(want)) {
			t.Errorf("%s does not have %q", name, want)
		}
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d.*?)\]`).FindSubmatch(read(t, "CHANGELOG.md"))
	if newest == nil || string(newest[1]) != version.Version {
		t.Errorf("the newest section of CHANGELOG.md is %q, want %s", newest, version.Version)
	}
}

// block finds the code in a Markdown file.
var block = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Code in the documents is code that is compiled, and mostly run: all of a file
// below examples/, or consecutive lines of one or of a test.
func TestStructure_documentsShowCompiledCode(t *testing.T) {
	var compiled []string
	for _, f := range sources(t) {
		if strings.HasPrefix(f.name, "examples/") || strings.HasSuffix(f.name, "example_test.go") || strings.HasPrefix(f.name, "example_") {
			compiled = append(compiled, flat(string(f.text)))
		}
	}
	check := func(where, code string) {
		if !slices.ContainsFunc(compiled, func(c string) bool { return strings.Contains(c, flat(code)) }) {
			t.Errorf("%s: this code is in no example:\n%s", where, code)
		}
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/design.md", "docs/interpreter.md", "docs/packages.md", "docs/rough-edges.md"} {
		for _, b := range block.FindAllStringSubmatch(string(read(t, name)), -1) {
			if b[1] == "go" {
				check(name, b[2])
			}
		}
	}
	for _, f := range sources(t) {
		if f.name != "doc.go" {
			continue
		}
		var p comment.Parser
		for _, b := range p.Parse(f.Doc.Text()).Content {
			if code, ok := b.(*comment.Code); ok {
				check(f.name, code.Text)
			}
		}
	}
}

// flat takes indentation and empty lines away, so that a part of a function can
// be found in it.
func flat(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// The first program that a reader sees is short, and the whole of a file.
func TestStructure_readmeProgram(t *testing.T) {
	program := string(read(t, "examples/quickstart/main.go"))
	_, program, _ = strings.Cut(program, "package main\n") // its comment says that it is the README's
	program = "package main\n" + program
	for _, b := range block.FindAllStringSubmatch(string(read(t, "README.md")), -1) {
		if b[1] != "go" {
			continue
		}
		if b[2] != program {
			t.Errorf("the README's program is not examples/quickstart/main.go:\n%s", b[2])
		}
		_, body, _ := strings.Cut(b[2], "func main() {\n")
		if n := strings.Count(body, "\n"); n > 15 {
			t.Errorf("the README's program has %d lines, want at most 15", n)
		}
		return
	}
	t.Error("the README has no program")
}

// The programs to copy from stay such that they can be read; what they need more
// belongs into the library.
func TestStructure_examplesAreShort(t *testing.T) {
	for example, most := range map[string]int{"examples/chat": 600, "examples/worker": 930} {
		lines := 0
		for _, f := range sources(t) {
			if f.pkg() == example && !f.isTest() {
				lines += bytes.Count(f.text, []byte("\n"))
			}
		}
		if lines == 0 || lines >= most {
			t.Errorf("%s has %d lines of Go without tests, want less than %d", example, lines, most)
		}
	}
}

// The commands of the README are run by .ci/run, which takes them from there;
// what is said of make in any document is a target of the Makefile.
func TestStructure_commands(t *testing.T) {
	if !bytes.Contains(read(t, ".ci/run"), []byte(`block sh >"$readme/commands"`)) {
		t.Error(".ci/run does not run the README's commands")
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):`).FindAllSubmatch(read(t, "Makefile"), -1) {
		targets[string(m[1])] = true
	}
	said := regexp.MustCompile("(?m)(?:`|^)make(?: -C \\w+)? ([a-z]+)")
	for _, name := range files(t) {
		if path.Ext(name) != ".md" && name != ".ci/run" {
			continue
		}
		for _, m := range said.FindAllSubmatch(read(t, name), -1) {
			if !targets[string(m[1])] {
				t.Errorf("%s: the Makefile has no target %q", name, m[1])
			}
		}
	}
}

func TestStructure_linksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllSubmatch(read(t, name), -1) {
			to := string(m[1])
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.FromSlash(path.Join(path.Dir(name), to))); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, to)
			}
		}
	}
}

// What a package brings is linked into the programs that import it, and into no
// other: most of them have no use for a protocol, an engine's client or traces.
func TestStructure_links(t *testing.T) {
	const sdk = "github.com/modelcontextprotocol/go-sdk"
	deps := func(pkg string) string {
		t.Helper()
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if !strings.Contains(deps("./mcptool"), sdk) {
		t.Errorf("mcptool does not link %s, so that this test looks for the wrong thing", sdk)
	}
	for _, pkg := range []string{".", "./interpreter", "./runners/...", "./aisdk", "./agui", "./otelloop", "./responsestest", "./examples/quickstart"} {
		if strings.Contains(deps(pkg), sdk) {
			t.Errorf("%s links %s", pkg, sdk)
		}
	}
}

// Every direct requirement is somebody's to keep up to date, so there is a
// reason for each.
func TestStructure_requirementsHaveReasons(t *testing.T) {
	design := string(read(t, "docs/design.md"))
	mod := string(read(t, "go.mod"))
	for line := range strings.Lines(mod) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.HasPrefix(f[1], "v") && !strings.Contains(design, "`"+f[0]+"`") {
			t.Errorf("docs/design.md gives no reason for %s", f[0])
		}
		if len(f) > 0 && slices.Contains([]string{"replace", "exclude", "tool", "retract"}, f[0]) {
			t.Errorf("go.mod: %s", fmt.Sprintf("the line %q reaches users or is lost on them", strings.TrimSpace(line)))
		}
	}
}
