package pylayer

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// settings are what the host's pip configuration says of where packages come
// from. pip's own files and variables are read, so that uv can be told the same,
// and so that nothing else of them reaches the sandbox.
type settings struct {
	options     map[string][]string // of the configuration, by name, without credentials that netrc has
	variables   map[string]string   // proxies
	cert        string              // the text of the file, as are the next
	clientCert  string
	netrc       string
	constraints []string // files
	folders     []string // of this machine, in which packages are
	secrets     []string // what no error and no progress may show
}

// passed are the options that an install is told. Those that are false may have
// several values.
var passed = map[string]bool{
	"index-url": true, "extra-index-url": false, "find-links": false, "trusted-host": false, "no-index": true,
	"timeout": true, "retries": true, "proxy": true, "pre": true, "prefer-binary": true,
}

// proxies are the variables of the environment that installers read.
var proxies = []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy"}

func readSettings(prefix string) (s settings, err error) {
	found, err := readFiles(prefix)
	if err != nil {
		return s, err
	}
	for _, kv := range os.Environ() {
		key, value, _ := strings.Cut(kv, "=")
		if option, ok := strings.CutPrefix(key, "PIP_"); ok && value != "" {
			found[canonical(option)] = value
		}
	}
	if v, ok := found["default-timeout"]; ok && found["timeout"] == "" {
		found["timeout"] = v
	}
	s.options = make(map[string][]string)
	for option, one := range passed {
		values := strings.Fields(found[option])
		if one && len(values) > 1 {
			return s, fmt.Errorf("the pip configuration gives %s more than one value", option)
		}
		if len(values) > 0 {
			s.options[option] = values
		}
	}
	if len(s.options["index-url"]) == 0 {
		s.options["index-url"] = []string{"https://pypi.org/simple"}
	}
	for option, to := range map[string]*string{"cert": &s.cert, "client-cert": &s.clientCert} {
		if file := found[option]; file != "" {
			text, err := os.ReadFile(expand(file))
			if err != nil {
				return s, fmt.Errorf("%s of the pip configuration cannot be read: %w", option, err)
			}
			*to = string(text)
		}
	}
	for _, file := range strings.Fields(found["constraint"]) {
		s.constraints = append(s.constraints, expand(file))
	}
	s.variables = make(map[string]string)
	for _, name := range proxies {
		value := os.Getenv(name)
		if value == "" {
			value = os.Getenv(strings.ToUpper(name))
		}
		if value != "" {
			s.variables[name] = value
			s.hide(value)
		}
	}
	for _, p := range s.options["proxy"] {
		s.hide(p)
	}
	s.findFolders()
	s.moveCredentials()
	return s, nil
}

// canonical is the name of an option as pip has it.
func canonical(option string) string {
	return strings.TrimLeft(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(option)), "_", "-"), "-")
}

func expand(file string) string {
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return file
}

// readFiles reads pip's configuration files: what comes later counts, and what is
// said of installs counts more than what is said of all.
func readFiles(prefix string) (map[string]string, error) {
	named := os.Getenv("PIP_CONFIG_FILE")
	var files []string
	if named != os.DevNull {
		home, _ := os.UserHomeDir()
		config, _ := os.UserConfigDir()
		switch runtime.GOOS {
		case "windows":
			files = append(files, filepath.Join(os.Getenv("ProgramData"), "pip", "pip.ini"),
				filepath.Join(home, "pip", "pip.ini"), filepath.Join(config, "pip", "pip.ini"))
		default:
			for _, dir := range slices.Backward(filepath.SplitList(os.Getenv("XDG_CONFIG_DIRS"))) {
				files = append(files, filepath.Join(dir, "pip", "pip.conf"))
			}
			files = append(files, "/etc/xdg/pip/pip.conf", "/etc/pip.conf")
			if home != "" {
				files = append(files, filepath.Join(home, ".pip", "pip.conf"), filepath.Join(home, ".config", "pip", "pip.conf"))
			}
			files = append(files, filepath.Join(config, "pip", "pip.conf"))
		}
		if prefix != "" {
			files = append(files, filepath.Join(prefix, "pip.conf"))
		}
		if named != "" {
			files = append(files, named)
		}
	}
	global, install := make(map[string]string), make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			if file == named {
				return nil, fmt.Errorf("PIP_CONFIG_FILE cannot be read: %w", err)
			}
			continue
		}
		sections := map[string]map[string]string{"global": global, "install": install}
		section, option := map[string]string(nil), ""
		for line := range strings.Lines(string(text)) {
			trimmed := strings.TrimSpace(line)
			switch {
			case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
			case (line[0] == ' ' || line[0] == '\t') && option != "" && section != nil:
				section[option] += " " + trimmed
			case trimmed[0] == '[':
				section, option = sections[strings.Trim(trimmed, "[]")], ""
			default:
				i := strings.IndexAny(trimmed, "=:")
				if i < 0 || section == nil {
					option = ""
					continue
				}
				option = canonical(trimmed[:i])
				section[option] = strings.TrimSpace(trimmed[i+1:])
			}
		}
	}
	maps.Copy(global, install)
	return global, nil
}

// findFolders finds the folders of this machine among the places of packages.
func (s *settings) findFolders() {
	for _, option := range []string{"index-url", "extra-index-url", "find-links"} {
		for i, value := range s.options[option] {
			path := expand(value)
			if u, err := url.Parse(value); err == nil && u.Scheme == "file" {
				path = u.Path
			}
			if filepath.IsAbs(path) {
				if !strings.HasPrefix(value, "file:") {
					s.options[option][i] = path
				}
				s.folders = append(s.folders, path)
			}
		}
	}
}

// plain is what every reader of a netrc file takes without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9._~!$*+=:@/%^&|-]+$`)

// moveCredentials takes credentials out of addresses and into a netrc file, where
// no list of processes and no log shows them, and adds those of the host's own
// netrc file for the same hosts. Two of one host stay where they are.
func (s *settings) moveCredentials() {
	have := make(map[string]string) // by host: its line
	theirs := hostNetrc()
	for _, option := range []string{"index-url", "extra-index-url", "find-links"} {
		for i, value := range s.options[option] {
			u, err := url.Parse(value)
			if err != nil || u.Host == "" {
				continue
			}
			host := u.Hostname()
			if u.User == nil {
				if login, ok := theirs[host]; ok && have[host] == "" {
					have[host] = fmt.Sprintf("machine %s login %s password %s\n", host, login[0], login[1])
					s.secrets = append(s.secrets, login[1])
				}
				continue
			}
			s.hide(value)
			password, ok := u.User.Password()
			line := fmt.Sprintf("machine %s login %s password %s\n", host, u.User.Username(), password)
			if !ok || !plain.MatchString(u.User.Username()) || !plain.MatchString(password) || have[host] != "" && have[host] != line {
				continue
			}
			have[host] = line
			u.User = nil
			s.options[option][i] = u.String()
		}
	}
	for _, host := range slices.Sorted(maps.Keys(have)) {
		s.netrc += have[host]
	}
}

// hostNetrc reads logins and passwords by host.
func hostNetrc() map[string][2]string {
	file := os.Getenv("NETRC")
	if file == "" {
		home, _ := os.UserHomeDir()
		file = filepath.Join(home, ".netrc")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	logins := make(map[string][2]string)
	words := strings.Fields(string(text))
	host := ""
	for i := 0; i+1 < len(words); i++ {
		login := logins[host]
		switch words[i] {
		case "machine":
			host = words[i+1]
			i++
			continue
		case "default":
			host = ""
			continue
		case "login":
			login[0] = words[i+1]
		case "password":
			login[1] = words[i+1]
		default:
			continue
		}
		i++
		if host != "" {
			logins[host] = login
		}
	}
	maps.DeleteFunc(logins, func(_ string, l [2]string) bool { return !plain.MatchString(l[0]) || !plain.MatchString(l[1]) })
	return logins
}

// hide has the credentials in an address shown nowhere.
func (s *settings) hide(address string) {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return
	}
	password, ok := u.User.Password()
	if !ok {
		password = u.User.Username() // a token
	}
	s.secrets = append(s.secrets, password, url.QueryEscape(password), url.PathEscape(password))
}

var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@'"]+@`)

// redact takes credentials out of a text.
func (l *List) redact(text string) string {
	for _, secret := range l.pip.secrets {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "****")
		}
	}
	return userinfo.ReplaceAllString(text, "${1}****@")
}

// config is a configuration file for pip.
func (s *settings) config() string {
	var b strings.Builder
	b.WriteString("[global]\n")
	for _, option := range slices.Sorted(maps.Keys(s.options)) {
		fmt.Fprintf(&b, "%s = %s\n", option, strings.Join(s.options[option], "\n\t"))
	}
	return b.String()
}

// uv is the same for uv, as variables of the environment.
func (s *settings) uv() map[string]string {
	env := make(map[string]string)
	set := func(variable, option, separator string) {
		if v := s.options[option]; len(v) > 0 {
			env[variable] = strings.Join(v, separator)
		}
	}
	set("UV_INDEX_URL", "index-url", "")
	set("UV_EXTRA_INDEX_URL", "extra-index-url", " ")
	set("UV_FIND_LINKS", "find-links", ",")
	set("UV_INSECURE_HOST", "trusted-host", " ")
	set("UV_HTTP_TIMEOUT", "timeout", "")
	set("ALL_PROXY", "proxy", "")
	if len(s.options["no-index"]) > 0 && isTrue(s.options["no-index"][0]) {
		env["UV_NO_INDEX"] = "1"
	}
	return env
}

func isTrue(s string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on", "y", "t"}, strings.ToLower(s))
}
