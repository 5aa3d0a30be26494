package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop/examples/balancer/forward"
)

// downFor is how long a host that took no connection gets no requests.
const downFor = 5 * time.Second

// A balancer passes all requests of a conversation on to one host, which it
// chooses by the conversation's ID alone: balancers side by side choose the same,
// and none has anything to remember.
type balancer struct {
	hosts     map[string]*url.URL // by name
	transport http.RoundTripper

	mu   sync.Mutex
	down map[string]time.Time // when a host took no connection
}

func newBalancer(hosts map[string]*url.URL) *balancer {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 100 // all are to few hosts
	return &balancer{hosts: hosts, transport: t, down: make(map[string]time.Time)}
}

// ServeHTTP streams what comes, as a ReverseProxy does with events.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proxy := &httputil.ReverseProxy{
		Transport: b,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetXForwarded()
			p.Out.Host = p.In.Host
			p.Out.Header.Del(forward.Header) // it is for hosts alone
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			slog.ErrorContext(r.Context(), "no host has answered", "path", r.URL.Path, "error", err)
			http.Error(w, "The servers cannot be reached. Try again in a moment.", http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// RoundTrip sends a request to the first host of its conversation's rank that
// takes a connection. What was sent once is not sent to another one.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	err := errors.New("there is no host")
	for _, name := range b.order(conversation(r.URL.Path)) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host = b.hosts[name].Scheme, b.hosts[name].Host
		if r.Body != nil {
			out.Body = io.NopCloser(r.Body) // the next one may need it
		}
		var res *http.Response
		if res, err = b.transport.RoundTrip(out); err == nil || !forward.Refused(err) {
			return res, err
		}
		b.mu.Lock()
		b.down[name] = time.Now()
		b.mu.Unlock()
	}
	return nil, err
}

// order is rank with the hosts last that took no connection a moment ago.
func (b *balancer) order(conversation string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var up, down []string
	for _, name := range rank(slices.Collect(maps.Keys(b.hosts)), conversation) {
		if time.Since(b.down[name]) < downFor {
			down = append(down, name)
		} else {
			up = append(up, name)
		}
	}
	return append(up, down...)
}

// rank orders hosts by what each of them and the conversation hash to. A host that
// comes takes its share of the conversations from the others, and those of one that
// goes are shared among them; all others stay where they are.
func rank(hosts []string, conversation string) []string {
	score := func(host string) uint64 {
		sum := sha256.Sum256([]byte(host + "\x00" + conversation))
		return binary.BigEndian.Uint64(sum[:])
	}
	slices.SortFunc(hosts, func(a, b string) int {
		if score(a) > score(b) {
			return -1
		}
		return 1
	})
	return hosts
}

// conversation is the ID in a path such as /chats/ID/events. What belongs to no
// conversation can go anywhere.
func conversation(path string) string {
	rest, ok := strings.CutPrefix(path, "/chats/")
	if !ok {
		return path
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}
