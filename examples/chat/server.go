package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

//go:embed page
var page embed.FS

// view is what a user sees of a run.
var view = fnloop.View{Outputs: true}

var errStopped = errors.New("stopped by the user")

// A server has the chats of many users.
type server struct {
	store *chatstore.Store
	loop  *fnloop.Loop
	hub   *fnloop.Hub
	log   *slog.Logger
	hosts string // the names that browsers know it by, with commas; empty means any
}

// handler answers to its own names alone: other sites can lead theirs to its address.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	files, _ := fs.Sub(page, "page")
	for _, host := range strings.Split(s.hosts, ",") {
		mux.Handle("GET "+host+"/", http.FileServerFS(files))
		mux.HandleFunc("GET "+host+"/chats", s.answer(s.list))
		mux.HandleFunc("POST "+host+"/chats", s.answer(s.create))
		mux.HandleFunc("GET "+host+"/chats/{chat}", s.inChat(s.show))
		mux.HandleFunc("POST "+host+"/chats/{chat}/runs", s.inChat(s.post))
		mux.HandleFunc("POST "+host+"/chats/{chat}/stop", s.inChat(s.stop))
		mux.HandleFunc("GET "+host+"/chats/{chat}/events", s.inChat(s.follow))
		mux.HandleFunc("GET "+host+"/chats/{chat}/files/{name...}", s.inChat(s.download))
	}
	secure := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"+
			" img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		mux.ServeHTTP(w, r)
	})
	return http.NewCrossOriginProtection().Handler(secure)
}

// answer is a handler for a function that may fail.
func (s *server) answer(f func(w http.ResponseWriter, r *http.Request, owner string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r, owner(w, r)); err != nil {
			s.fail(w, r, err)
		}
	}
}

// inChat is one for a function that needs the chat of the path.
func (s *server) inChat(f func(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error) http.HandlerFunc {
	return s.answer(func(w http.ResponseWriter, r *http.Request, owner string) error {
		c, err := s.store.Chat(r.Context(), owner, r.PathValue("chat"))
		if err != nil {
			return err
		}
		return f(w, r, c)
	})
}

// owner tells users apart by a made-up cookie. Put your own sign-in in its place.
func owner(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie("user")
	if err != nil || len(cookie.Value) < 20 {
		cookie = &http.Cookie{Name: "user", Value: rand.Text(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: 365 * 24 * 3600, Secure: r.TLS != nil}
		http.SetCookie(w, cookie)
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	return hex.EncodeToString(sum[:16])
}

// fail answers with what to do about an error, and logs what only the host can mend.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusServiceUnavailable, "The server has a problem and has changed nothing. Try again."
	var input *chatstore.InputError
	var budget *chatstore.BudgetError
	var undecidable *fnloop.ConfigError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &input):
		status, text = http.StatusBadRequest, input.Reason
	case errors.As(err, &budget):
		status, text = http.StatusTooManyRequests, fmt.Sprintf("You have used %d tokens in the last day, of %d. Come back later.", budget.Used, budget.Budget)
	case errors.As(err, &tooLarge):
		status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("A message may have %d MiB with its files.", chatstore.MaxForm>>20)
	case errors.As(err, &undecidable):
		status, text = http.StatusConflict, undecidable.Error()
	case errors.Is(err, chatstore.ErrNotFound):
		status, text = http.StatusNotFound, "There is no such chat, message or file. Files that are too large are not kept."
	case errors.Is(err, chatstore.ErrConflict):
		status, text = http.StatusConflict, "The chat has gone on in another tab; look at it and send again."
	case errors.Is(err, fnloop.ErrBusy):
		status, text = http.StatusConflict, "The last message is still being answered; wait for it, or stop it."
	case errors.Is(err, fnloop.ErrNoRun):
		status, text = http.StatusConflict, "Nothing runs in this chat."
	case errors.Is(err, fnloop.ErrDraining):
		text = "The server is shutting down. Your message is kept; continue in a moment."
	default:
		s.log.ErrorContext(r.Context(), "a request failed", "path", r.URL.Path, "error", err)
	}
	_ = reply(w, status, map[string]string{"error": text})
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

func (s *server) list(w http.ResponseWriter, r *http.Request, owner string) error {
	chats, err := s.store.Chats(r.Context(), owner, 100)
	if err != nil {
		return err
	}
	used, err := s.store.Tokens(r.Context(), owner)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"chats": chats, "tokens": used, "budget": s.store.Budget})
}

func (s *server) create(w http.ResponseWriter, r *http.Request, owner string) error {
	c, err := s.store.NewChat(r.Context(), owner)
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, c)
}

func (s *server) show(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	running := s.hub.Running(c.ID) // before the runs are read: one that ends in between is followed for nothing
	runs, err := s.store.Runs(r.Context(), c)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"chat": c, "runs": runs, "running": running})
}

// post takes a message, decisions on calls that wait for approval, or neither to
// go on where a run was cut short, and starts the run that answers. The run goes on
// when the request is over.
func (s *server) post(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	message, err := chatstore.ReadForm(w, r)
	if err != nil {
		return err
	}
	run, err := s.store.Post(r.Context(), c.Owner, c.ID, message)
	if err != nil {
		return err
	}
	if err := s.hub.Start(r.Context(), c.ID, func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
		return run.Events(ctx, s.loop)
	}); err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, map[string]string{"run": run.ID})
}

func (s *server) stop(w http.ResponseWriter, _ *http.Request, c chatstore.Chat) error {
	if !s.hub.Stop(c.ID, errStopped) {
		return fnloop.ErrNoRun
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) follow(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	s.hub.ServeSSE(w, r, c.ID, fnloop.SSE{View: view})
	return nil
}

func (s *server) download(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	return s.store.ServeFile(w, r, c, r.PathValue("name"))
}
