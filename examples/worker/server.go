package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

// handler serves any chat, whichever process answers its prompts.
func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats", n.answer(n.create))
	mux.HandleFunc("GET /chats/{chat}", n.inChat(n.show))
	mux.HandleFunc("POST /chats/{chat}/runs", n.inChat(n.post))
	mux.HandleFunc("POST /chats/{chat}/stop", n.inChat(n.halt))
	mux.HandleFunc("GET /chats/{chat}/events", n.inChat(n.follow))
	return http.NewCrossOriginProtection().Handler(mux)
}

// answer is a handler for a function that may fail. Put your sign-in in the place of
// the header User.
func (n *node) answer(f func(w http.ResponseWriter, r *http.Request, owner string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r, r.Header.Get("User")); err != nil {
			n.fail(w, r, err)
		}
	}
}

// inChat is one for a function that needs the chat of the path.
func (n *node) inChat(f func(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error) http.HandlerFunc {
	return n.answer(func(w http.ResponseWriter, r *http.Request, owner string) error {
		c, err := n.store.Chat(r.Context(), owner, r.PathValue("chat"))
		if err != nil {
			return err
		}
		return f(w, r, c)
	})
}

// fail answers with what to do about an error, and logs what only the host can mend.
func (n *node) fail(w http.ResponseWriter, r *http.Request, err error) {
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
		status, text = http.StatusNotFound, "There is no such chat or message."
	case errors.Is(err, chatstore.ErrConflict):
		status, text = http.StatusConflict, "The chat has gone on elsewhere; look at it and send again."
	case errors.Is(err, fnloop.ErrBusy):
		status, text = http.StatusConflict, "The last message is still being answered; wait for it, or stop it."
	case errors.Is(err, fnloop.ErrNoRun):
		status, text = http.StatusConflict, "Nothing runs in this chat."
	case r.Context().Err() == nil:
		n.log.ErrorContext(r.Context(), "a request failed", "path", r.URL.Path, "error", err)
	}
	_ = reply(w, status, map[string]string{"error": text})
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

func (n *node) create(w http.ResponseWriter, r *http.Request, owner string) error {
	if owner == "" {
		return &chatstore.InputError{Field: "User", Reason: "The header User has to say who asks."}
	}
	c, err := n.store.NewChat(r.Context(), owner)
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, c)
}

// show gives the messages and answers of a chat, with the calls that wait for a
// decision at the end of the last one.
func (n *node) show(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	runs, err := n.store.Runs(r.Context(), c)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"chat": c, "runs": runs, "running": len(runs) > 0 && !runs[len(runs)-1].Ended})
}

// post takes a message, or decisions on calls that wait for approval, and adds the job
// that answers. It is refused while the chat's last message is being answered.
func (n *node) post(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	message, err := chatstore.ReadForm(w, r)
	if err != nil {
		return err
	}
	run, err := n.store.Post(r.Context(), c.Owner, c.ID, message)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, map[string]string{"run": run.ID})
}

func (n *node) halt(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	found, err := n.stop(r.Context(), c.Head)
	if err != nil {
		return err
	}
	if !found {
		return fnloop.ErrNoRun
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
