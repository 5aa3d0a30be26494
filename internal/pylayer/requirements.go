package pylayer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/fnloop/fnloop"
)

// A List is what a layer holds, and where it comes from. The credentials in it
// are for the install alone.
type List struct {
	requirements []string // lines of a requirements file
	constraints  []string
	pip          settings
}

// maxFile bounds a requirements file, and maxDepth files that name others.
const (
	maxFile  = 1 << 20
	maxDepth = 8
)

// Parse reads requirements as pip has them, and the host's pip configuration.
// Prefix is that of the interpreter, whose own configuration counts too; empty
// leaves it out. Its error is a [*fnloop.PackageError].
func Parse(packages []string, prefix string) (*List, error) {
	l := new(List)
	var err error
	if l.pip, err = readSettings(prefix); err != nil {
		return nil, l.problem("%v", err)
	}
	for _, p := range packages {
		if strings.ContainsFunc(p, unicode.IsControl) {
			return nil, l.problem("%q has a line break or another control character; give each requirement by itself", p)
		}
		if err := l.add(p, "", 0, &l.requirements); err != nil {
			return nil, err
		}
	}
	for _, file := range l.pip.constraints {
		if err := l.addFile(file, 0, &l.constraints); err != nil {
			return nil, err
		}
	}
	// The order of packages has no meaning, that of options may have.
	slices.SortStableFunc(l.requirements, func(a, b string) int {
		if x, y := strings.HasPrefix(a, "-"), strings.HasPrefix(b, "-"); x || y {
			return btoi(y) - btoi(x)
		}
		return strings.Compare(strings.ToLower(a), strings.ToLower(b))
	})
	l.requirements = slices.Compact(l.requirements)
	return l, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// problem is an error of the list, without credentials.
func (l *List) problem(format string, args ...any) error {
	return &fnloop.PackageError{Field: "Packages", Reason: l.redact(fmt.Sprintf(format, args...))}
}

// taken are the options of requirements files that are passed on, and whether
// each has a value.
var taken = map[string]bool{
	"--index-url": true, "--extra-index-url": true, "--trusted-host": true, "--no-index": false, "--find-links": true,
	"--pre": false, "--prefer-binary": false, "--require-hashes": false, "--no-binary": true, "--only-binary": true,
}

var shortOptions = map[string]string{"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}

// name is how a requirement begins that is no URL: a name, extras, and then a
// version, a marker or an address.
var name = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(@.*|[<>=!~;(\s].*)?$`)

// add takes a line, of a file in dir if that is not empty.
func (l *List) add(line, dir string, depth int, to *[]string) error {
	line = strings.TrimSpace(line)
	if i := strings.Index(line, " #"); i >= 0 {
		line = strings.TrimSpace(line[:i])
	}
	switch {
	case line == "" && dir == "":
		return l.problem("one of them is empty")
	case line == "" || line[0] == '#' && dir != "":
		return nil
	case line[0] == '-':
		return l.addOption(line, dir, depth, to)
	}
	// The part that is no option; hashes follow it.
	what, _, _ := strings.Cut(line, " --")
	_, address, direct := strings.Cut(what, "@")
	if strings.Contains(what, "://") && !direct || strings.HasPrefix(what, "http") && strings.Contains(what, "://") {
		direct, address = true, what
	}
	address = strings.TrimSpace(address)
	switch {
	case direct && strings.Contains(address, "+"+"http"), strings.Contains(what, "git+"), strings.Contains(what, "hg+"), strings.Contains(what, "svn+"):
		return l.problem("%q is a repository, which is not built here; give the address of a wheel", line)
	case direct && !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://"):
		return l.problem("%q is a file of this machine, which the sandbox does not have; give a name, or an address that begins with https://", line)
	case direct:
	case strings.HasPrefix(what, ".") || strings.ContainsAny(what, `/\`) || strings.HasSuffix(what, ".whl"):
		return l.problem("%q is a file of this machine, which the sandbox does not have; give a name, or an address that begins with https://", line)
	case !name.MatchString(what):
		return l.problem("%q is no requirement; it should look like numpy, numpy==2.1.0, or -r requirements.txt", line)
	}
	*to = append(*to, strings.Join(strings.Fields(line), " "))
	return nil
}

func (l *List) addOption(line, dir string, depth int, to *[]string) error {
	option, value, _ := strings.Cut(line, " ")
	if head, tail, ok := strings.Cut(option, "="); ok {
		option, value = head, tail+value
	}
	if len(option) > 2 && option[1] != '-' { // -rfile
		option, value = option[:2], option[2:]+value
	}
	value = strings.TrimSpace(value)
	if long := shortOptions[option]; long != "" {
		option = long
	}
	switch option {
	case "--requirement", "--constraint":
		if value == "" {
			return l.problem("%s needs the name of a file", option)
		}
		if !filepath.IsAbs(value) && dir != "" {
			value = filepath.Join(dir, value)
		}
		if option == "--constraint" {
			to = &l.constraints
		}
		return l.addFile(value, depth, to)
	case "--editable":
		return l.problem("%q cannot be installed: editable packages are files of this machine", line)
	}
	needs, ok := taken[option]
	switch {
	case !ok:
		return l.problem("the option %s is not one that is taken here", option)
	case needs && value == "":
		return l.problem("%s needs a value", option)
	case !needs:
		*to = append(*to, option)
		return nil
	case option == "--find-links" && !strings.Contains(value, "://"):
		if !filepath.IsAbs(value) {
			value = filepath.Join(dir, value)
		}
		if abs, err := filepath.Abs(value); err == nil {
			value = abs
		}
		l.pip.folders = append(l.pip.folders, value)
	}
	*to = append(*to, option+" "+value)
	return nil
}

var variable = regexp.MustCompile(`\$\{[A-Z0-9_]+\}`)

// addFile takes the lines of a requirements file.
func (l *List) addFile(file string, depth int, to *[]string) error {
	if depth == maxDepth {
		return l.problem("%s: files that name each other are more than %d deep", file, maxDepth)
	}
	info, err := os.Stat(file)
	if err == nil && info.Size() > maxFile {
		return l.problem("%s: a requirements file has at most %d bytes", file, maxFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return l.problem("the requirements file cannot be read: %v", err)
	}
	joined := strings.NewReplacer("\r\n", "\n", "\\\r\n", " ", "\\\n", " ").Replace(string(text))
	for line := range strings.Lines(joined) {
		line = variable.ReplaceAllStringFunc(line, func(v string) string {
			if value, ok := os.LookupEnv(v[2 : len(v)-1]); ok {
				l.pip.secrets = append(l.pip.secrets, value)
				return value
			}
			return v
		})
		if strings.ContainsFunc(strings.TrimRight(line, "\n"), func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			return l.problem("%s: a line has control characters", file)
		}
		if err := l.add(line, filepath.Dir(file), depth+1, to); err != nil {
			if bad, ok := err.(*fnloop.PackageError); ok && !strings.HasPrefix(bad.Reason, file) {
				bad.Reason = file + ": " + bad.Reason
			}
			return err
		}
	}
	return nil
}
