package main

import (
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"time"
	"unicode"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop/cmd/askpy/internal/recording"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

const (
	defaultBaseURL = "https://api.openai.com/v1"
	// headerTimeout bounds the wait for the first byte of a response: a model
	// may think for minutes before it, but not forever.
	headerTimeout = 10 * time.Minute
)

// An environment is what the environment variables say.
type environment struct {
	key, organization, project string
	model                      string // empty means the default
	home                       string // of what is kept; empty means nowhere
	baseURL                    *url.URL
	runtimeKey, runtimeURL     string
	mcpToken                   string // that clients of askpy mcp have to send
	noColor, dumb              bool
	graphics                   string // as terminal.Graphics has it
}

// readEnvironment reads and checks the variables. Its errors are *usageError
// and never hold a value, since any of them may be a secret.
func readEnvironment(getenv func(string) string) (environment, error) {
	env := environment{
		key:          getenv("OPENAI_API_KEY"),
		model:        getenv("OPENAI_MODEL"),
		home:         home(getenv),
		organization: getenv("OPENAI_ORG_ID"),
		project:      getenv("OPENAI_PROJECT_ID"),
		runtimeKey:   getenv("RUNTIME_API_KEY"),
		runtimeURL:   getenv("RUNTIME_API_URL"),
		mcpToken:     getenv("ASKPY_MCP_TOKEN"),
		noColor:      getenv("NO_COLOR") != "",
		dumb:         getenv("TERM") == "dumb",
		graphics:     terminal.Graphics(getenv),
	}
	if env.model != "" && !isModel(env.model) {
		return env, usagef("OPENAI_MODEL is no name of a model; it should look like %s", defaultModel)
	}
	base := getenv("OPENAI_BASE_URL")
	for _, v := range []struct{ name, value string }{
		{"OPENAI_API_KEY", env.key},
		{"OPENAI_ORG_ID", env.organization},
		{"OPENAI_PROJECT_ID", env.project},
		{"OPENAI_BASE_URL", base},
		{"RUNTIME_API_KEY", env.runtimeKey},
		{"RUNTIME_API_URL", env.runtimeURL},
		{"ASKPY_MCP_TOKEN", env.mcpToken},
	} {
		if flaw := tokenFlaw(v.value); flaw != "" {
			return env, usagef("%s has %s in it; set it again without", v.name, flaw)
		}
	}
	if base == "" {
		base = defaultBaseURL
	}
	u, err := url.Parse(base)
	const like = "it should look like " + defaultBaseURL
	switch {
	case err != nil:
		return env, usagef("OPENAI_BASE_URL is not a URL; %s", like)
	case u.Scheme != "http" && u.Scheme != "https":
		return env, usagef("OPENAI_BASE_URL has no scheme http:// or https://; %s", like)
	case u.Host == "":
		return env, usagef("OPENAI_BASE_URL has no host; %s", like)
	case u.RawQuery != "" || u.Fragment != "":
		return env, usagef("OPENAI_BASE_URL has a query or a fragment; %s", like)
	}
	env.baseURL = u
	return env, nil
}

// home is the folder in which conversations are kept.
func home(getenv func(string) string) string {
	if dir := getenv("ASKPY_HOME"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "askpy")
	}
	dir, below := getenv("HOME"), filepath.Join(".local", "state", "askpy")
	switch runtime.GOOS {
	case "windows":
		dir, below = getenv("LocalAppData"), "askpy"
	case "darwin":
		below = filepath.Join("Library", "Application Support", "askpy")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, below)
}

// tokenFlaw says what keeps s from being sent in a header or URL.
func tokenFlaw(s string) string {
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r':
			return "a line break"
		case unicode.IsSpace(r):
			return "a blank"
		case unicode.IsControl(r):
			return "a control character"
		case r > unicode.MaxASCII:
			return "a character that is not ASCII"
		}
	}
	return ""
}

// client makes the client of the API. It has no fallbacks to variables of the
// process.
func (e environment) client(transport http.RoundTripper) *responses.ResponseService {
	opts := []option.RequestOption{
		option.WithBaseURL(e.baseURL.String()),
		option.WithHTTPClient(&http.Client{Transport: transport}),
	}
	if e.key != "" {
		opts = append(opts, option.WithAPIKey(e.key))
	}
	if e.organization != "" {
		opts = append(opts, option.WithOrganization(e.organization))
	}
	if e.project != "" {
		opts = append(opts, option.WithProject(e.project))
	}
	service := responses.NewResponseService(opts...)
	return &service
}

// scrubber knows the secrets of the environment.
func (e environment) scrubber() recording.Scrubber {
	secrets := []string{e.key, e.organization, e.project, e.runtimeKey}
	if e.baseURL != nil && e.baseURL.User != nil {
		password, _ := e.baseURL.User.Password()
		secrets = append(secrets, password, e.baseURL.User.Username())
	}
	return recording.NewScrubber(secrets)
}

// newTransport makes the transport to the API.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = headerTimeout
	return t
}
