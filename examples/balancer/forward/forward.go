// Package forward is for the hosts behind a balancer: with it they pass requests on
// to the host that has the conversation's interpreter.
package forward

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// Header is of a request that one host has passed on to another, so that it is not
// passed on again. A balancer takes it from what browsers send.
const Header = "X-Passed-On-By"

// A Handler passes requests for a conversation whose
// interpreter another host has on to that one. With it hosts can come and go
// without any interpreter being lost but those of the host that goes.
type Handler struct {
	// Sessions have the interpreters of this host, and its name.
	Sessions *interpreter.Sessions
	// Peers are the hosts by name. A name that is not among them is never gone to,
	// whatever a stored Answer says.
	Peers map[string]*url.URL
	// Load reads the state of a request's conversation; nil if there is none.
	Load func(*http.Request) (*fnloop.Answer, error)
	// Next answers what is this host's.
	Next http.Handler
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, err := h.peer(r)
	if err != nil {
		http.Error(w, "The conversation cannot be read. Try again.", http.StatusServiceUnavailable)
		return
	}
	if peer == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(peer)
			p.Out.Host = p.In.Host
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			p.Out.Header.Set(Header, h.Sessions.Host)
			if p.Out.Body != nil {
				p.Out.Body = io.NopCloser(p.Out.Body) // for Next, if the peer is gone
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if Refused(err) { // its interpreters are gone, and the model will read of it
				h.Next.ServeHTTP(w, r)
				return
			}
			http.Error(w, "The server that has the conversation has not answered.", http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// peer is the host that a request has to be passed on to, or nil.
func (h *Handler) peer(r *http.Request) (*url.URL, error) {
	if r.Header.Get(Header) != "" {
		return nil, nil
	}
	a, err := h.Load(r)
	if err != nil || a == nil {
		return nil, err
	}
	name, err := h.Sessions.HostOf(a)
	if err != nil || name == h.Sessions.Host {
		return nil, err
	}
	return h.Peers[name], nil
}

// Refused reports whether a request was not sent, as nobody took the connection.
func Refused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
