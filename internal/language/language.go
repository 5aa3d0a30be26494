// Package language has the languages that local sandboxes run programs of: what
// each needs, how it is found in a sandbox, and the commands that run a program.
//
// Python is not among them. It is what the supervisor itself is written in, and
// runs a program without a command.
package language

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// A sandbox that has Go has its compiled standard library in GoCache, a GOCACHE
// made with CGO_ENABLED=0 that cannot be written. To compile it takes longer than
// programs have, and more room than they may fill.
const (
	GoDir   = "/opt/fnloop/go"
	GoCache = GoDir + "/cache"
)

// A kit is one way to run programs of one language.
type kit struct {
	name  string   // of the language
	needs []string // commands, and files where the name begins with a slash
	// version is a command that prints the version of what runs programs. It
	// fails where that does not do what the steps ask of it.
	version []string
	label   string // stands before the version
	file    string // the program's, in /tmp
	env     []string
	// steps are commands, the last of which is the program. The others compile
	// it: they have no input, and the first that fails ends the program. HEAP is
	// half of the memory limit, in MiB, and MEMORY nine tenths of it, in bytes.
	steps [][]string
}

// kits are in the order in which languages are named, and for one language in
// the order in which they are tried.
var kits = []kit{
	{
		name: fnloop.LanguageBash, needs: []string{"bash"},
		version: []string{"bash", "-c", "echo ${BASH_VERSION%%(*}"},
		file:    "main.sh", steps: [][]string{{"bash", "/tmp/main.sh"}},
	},
	{
		// From 20.19 and 22.7 on it finds out by itself whether a file is a module,
		// and would say so on standard error.
		name: fnloop.LanguageJavaScript, needs: []string{"node"}, label: "Node.js ",
		version: []string{"node", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "-p", `
			const [a, b] = process.versions.node.split(".").map(Number);
			if (a < 20 || a == 20 && b < 19 || a == 21 || a == 22 && b < 7) process.exit(1);
			process.versions.node`},
		file: "main.js", steps: [][]string{{"node", nodeHeap, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "/tmp/main.js"}},
	},
	{
		name: fnloop.LanguageJavaScript, needs: []string{"node"}, label: "Node.js ",
		version: []string{"node", "-p", `process.versions.node + ", which has require and not import"`},
		file:    "main.js", steps: [][]string{{"node", nodeHeap, "/tmp/main.js"}},
	},
	{
		// Types are not checked, here and below: that takes seconds.
		name: fnloop.LanguageTypeScript, needs: []string{"node"}, label: "Node.js ",
		version: append(append([]string{"node"}, stripTypes...), "-p", "process.versions.node"),
		file:    "main.ts", steps: [][]string{append(append([]string{"node", nodeHeap}, stripTypes...), "/tmp/main.ts")},
	},
	{
		// The banner gives modules what scripts have, since both are written.
		name: fnloop.LanguageTypeScript, needs: []string{"node", "esbuild"}, label: "Node.js ",
		version: []string{"node", "-p", "process.versions.node"},
		file:    "main.ts", steps: [][]string{
			{"esbuild", "/tmp/main.ts", "--outfile=/tmp/main.mjs", "--format=esm", "--platform=node", "--target=node18", "--sourcemap=inline", "--log-level=error",
				`--banner:js=import{createRequire as __createRequire}from"node:module";globalThis.require=__createRequire(import.meta.url);`},
			{"node", nodeHeap, "--enable-source-maps", "/tmp/main.mjs"},
		},
	},
	{
		name: fnloop.LanguageTypeScript, needs: []string{"node"}, label: "Node.js ",
		version: []string{"node", "-p", `process.features.typescript ? process.versions.node + ", which has no enum and no namespace" : process.exit(1)`},
		file:    "main.ts", steps: [][]string{{"node", nodeHeap, "--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "/tmp/main.ts"}},
	},
	{
		name: fnloop.LanguageR, needs: []string{"Rscript"},
		version: []string{"env", "R_DEFAULT_PACKAGES=NULL", "Rscript", "-e", "cat(as.character(getRversion()))"}, // half the time
		file:    "main.R", steps: [][]string{{"Rscript", "/tmp/main.R"}},
	},
	{
		// A machine's worth of compiler and collector threads is slower to start
		// than most programs are to run.
		name: fnloop.LanguageJava, needs: []string{"java", "javac"},
		version: []string{"java", "-XX:+UseSerialGC", "-Xmx16m", "--version"},
		file:    "Main.java", steps: [][]string{{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XmxHEAPm", "-Duser.home=/tmp", "/tmp/Main.java"}},
	},
	{
		name: fnloop.LanguageGo, needs: []string{"go", GoCache},
		version: []string{"go", "env", "GOVERSION"},
		file:    "main.go",
		// An index that is not in the cache, as after a copy, cannot be written there,
		// and without it Go does not find its own packages.
		env: []string{"GOCACHE=" + GoCache, "GODEBUG=goindex=0", "CGO_ENABLED=0", "GOENV=off", "GOPROXY=off", "GOTOOLCHAIN=local", "GOMEMLIMIT=MEMORY"},
		steps: [][]string{
			{"go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", "/tmp/main", "/tmp/main.go"},
			{"/tmp/main"},
		},
	},
}

const nodeHeap = "--max-old-space-size=HEAP"

// Versions from 22.7 on have it, and 26 does not any more.
var stripTypes = []string{"--experimental-transform-types", "--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"}

//go:embed find.py
var finder string

// find is a Python program that looks for languages in its sandbox, but for the
// needs that are provided. [read] takes what it prints.
func find(provided []string) string {
	type entry struct {
		Name    string   `json:"name"`
		Needs   []string `json:"needs"`
		Version []string `json:"version"`
		Env     []string `json:"env"`
	}
	var table []entry
	for _, k := range kits {
		needs := slices.DeleteFunc(slices.Clone(k.needs), func(need string) bool { return slices.Contains(provided, need) })
		table = append(table, entry{k.name, needs, k.version, k.env})
	}
	b, _ := json.Marshal(table) // strings
	return "TABLE = " + strconv.QuoteToASCII(string(b)) + "\n" + finder
}

// A Set is the languages of one sandbox. The zero value has Python alone.
type Set struct {
	found   []found
	missing map[string]string // why a language is not there
}

type found struct {
	kit     kit
	version string
}

// Has reports whether a program of that language can be run.
func (s Set) Has(name string) bool {
	return slices.ContainsFunc(s.found, func(f found) bool { return f.kit.name == name })
}

// version is how one looks. Packages can have another printed, and the model reads
// it.
var version = regexp.MustCompile(`^[\w.+~:, -]{0,80}$`)

// read makes a Set of what [find] printed.
func read(stdout string) (Set, error) {
	var told []struct {
		Version string `json:"version"`
		Missing string `json:"missing"`
	}
	if err := json.Unmarshal([]byte(stdout), &told); err != nil || len(told) != len(kits) {
		return Set{}, fmt.Errorf("the program that looks for languages printed %.200q", stdout)
	}
	s := Set{missing: make(map[string]string)}
	for i, k := range kits {
		if t := &told[i]; !version.MatchString(t.Version) {
			t.Missing = k.name + " prints no version that can be shown"
		}
		switch t := told[i]; {
		case s.Has(k.name):
		case t.Missing == "":
			delete(s.missing, k.name)
			s.found = append(s.found, found{k, k.label + t.Version})
		case s.missing[k.name] == "":
			s.missing[k.name] = t.Missing
		}
	}
	return s, nil
}

// Languages are those of s, with a Python of that version in the first place.
func (s Set) Languages(python string) []fnloop.Language {
	languages := []fnloop.Language{{Name: fnloop.LanguagePython, Version: python}}
	for _, f := range s.found {
		languages = append(languages, fnloop.Language{Name: f.kit.name, Version: f.version})
	}
	return languages
}

// Command is how p is run within so many bytes of memory, nil for Python. Its
// error is a [*fnloop.ProgramError] that says what there is.
func (s Set) Command(p fnloop.Program, memory int64) (*supervisor.Command, error) {
	if err := p.CheckFor(s.Languages("")); err != nil {
		if why, known := s.missing[p.Language]; known {
			if e, ok := err.(*fnloop.ProgramError); ok && e.Field == "language" {
				e.Reason += " (" + why + ")"
			}
		}
		return nil, err
	}
	for _, f := range s.found {
		if f.kit.name != p.Language {
			continue
		}
		fill := strings.NewReplacer("HEAP", strconv.FormatInt(max(memory/2>>20, 8), 10), "MEMORY", strconv.FormatInt(memory/10*9, 10))
		c := &supervisor.Command{File: "/tmp/" + f.kit.file}
		for _, kv := range f.kit.env {
			c.Env = append(c.Env, fill.Replace(kv))
		}
		for _, step := range f.kit.steps {
			args := slices.Clone(step)
			for i := range args {
				args[i] = fill.Replace(args[i])
			}
			c.Steps = append(c.Steps, args)
		}
		return c, nil
	}
	return nil, nil // Python
}

// Python reports whether a program is one of Python.
func Python(p fnloop.Program) bool {
	return p.Language == "" || p.Language == fnloop.LanguagePython
}
