package runtimecloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Secret is a string that is not to be seen: package fmt with every verb,
// log/slog and encoding/json give "[redacted]" for it, or nothing when it is
// empty. Convert it to a string to use it.
type Secret string

func (s Secret) mask() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// Format prints the mask, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.mask()) }

// LogValue gives the mask.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.mask()) }

// MarshalText gives the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.mask()), nil }

// An EgressSecret is a secret that code in every sandbox of the account can use
// without ever holding it. The sandboxes have an environment variable Name with
// a placeholder; the service puts the value in its place, outside the sandbox,
// in the URL and the headers of HTTPS requests to Hosts and nowhere else.
//
// It works only where the sandbox may reach those hosts, see [Network]. Name
// only hosts that you trust with the value: one that echoes its requests shows
// it to the sandbox.
type EgressSecret struct {
	// Name is the name of the environment variable, such as "WEATHER_API_KEY".
	Name string
	// Value is visible ASCII with spaces, at most 8 KiB.
	Value Secret
	// Hosts are where the value may go: 1 to 16 names such as
	// "api.example.com" or "*.example.com".
	Hosts []string
	// Header, when not empty, is set on every request to Hosts, in place of the
	// sandbox's own, so that code there need not send the placeholder.
	Header string
	// Format is the value of Header, with "{value}" where the secret goes.
	// Empty means "{value}".
	Format string
}

// A StoredSecret is what the service tells of an [EgressSecret]. It does not
// give the value back.
type StoredSecret struct {
	Name        string    `json:"name"`
	Hosts       []string  `json:"hosts"`
	Header      string    `json:"header,omitempty"`
	Format      string    `json:"format,omitempty"`
	Placeholder string    `json:"placeholder"`
	Enforced    bool      `json:"enforced"` // the hosts of running sandboxes have it
	UpdatedAt   time.Time `json:"updatedAt"`
}

const maxSecret = 8 << 10

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s EgressSecret) check() error {
	bad := func(field, format string, args ...any) error {
		return &ConfigError{Field: "EgressSecret." + field, Reason: fmt.Sprintf(format, args...)}
	}
	visible := func(r rune) bool { return r >= ' ' && r <= '~' }
	switch {
	case !envName.MatchString(s.Name):
		return bad("Name", "%q is no name for an environment variable", s.Name)
	case s.Value == "":
		return bad("Value", "is empty")
	case len(s.Value) > maxSecret:
		return bad("Value", "%d bytes are more than %d", len(s.Value), maxSecret)
	case strings.ContainsFunc(string(s.Value), func(r rune) bool { return !visible(r) }):
		return bad("Value", "holds a character that is not visible ASCII; is there a newline at its end?")
	case len(s.Hosts) == 0 || len(s.Hosts) > 16:
		return bad("Hosts", "%d hosts, want 1 to 16", len(s.Hosts))
	case s.Format != "" && s.Header == "":
		return bad("Format", "has no use without Header")
	}
	if i := slices.IndexFunc(s.Hosts, func(h string) bool { return h == "" || h == "*" || strings.ContainsAny(h, "/: \t\n") }); i >= 0 {
		return bad("Hosts", "%q is no host name", s.Hosts[i])
	}
	return nil
}

// SetSecret stores s for all sandboxes of the account, or replaces the one of
// its name. Running sandboxes get it within seconds. The value is not logged
// and is in no error.
func (r *Runner) SetSecret(ctx context.Context, s EgressSecret) (StoredSecret, error) {
	if err := s.check(); err != nil {
		return StoredSecret{}, err
	}
	c, err := r.start()
	if err != nil {
		return StoredSecret{}, err
	}
	body := encode(struct {
		Value  string   `json:"value"`
		Hosts  []string `json:"hosts"`
		Header string   `json:"header,omitempty"`
		Format string   `json:"format,omitempty"`
	}{string(s.Value), s.Hosts, s.Header, s.Format})
	var stored StoredSecret
	err = c.do(ctx, &request{
		op: "set secret", method: http.MethodPut, path: "/v1/egress-secrets/" + url.PathEscape(s.Name),
		key: stepKey(newRunID(), "secret"), body: body, hide: string(s.Value),
	}, &stored)
	return stored, err
}

// encode gives v as JSON, without the HTML escapes of json.Marshal. It is for
// values that cannot fail.
func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
