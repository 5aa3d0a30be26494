package main

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/aisdk"
	"github.com/fnloop/fnloop/chatstore"
	rt "github.com/fnloop/fnloop/responsestest"
)

// bundle makes one script of the page with useChat and what it imports.
func bundle(t *testing.T) string {
	t.Helper()
	node := needs(t, "node")
	dir := filepath.Join("..", "..", "internal", "frontendtest")
	esbuild := filepath.Join("node_modules", "esbuild", "bin", "esbuild")
	if _, err := os.Stat(filepath.Join(dir, esbuild)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("run npm ci --ignore-scripts in internal/frontendtest: ", err)
	}
	out := filepath.Join(t.TempDir(), "usechat.js")
	cmd := exec.CommandContext(t.Context(), node, esbuild, "usechat.jsx", "--bundle", "--jsx=automatic", `--define:process.env.NODE_ENV="production"`, "--outfile="+out)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}

// A useChat of the AI SDK talks to the same chats through package aisdk: tools, an approval,
// a page that is loaded again in the middle of an answer, and a stop.
func TestUseChat(t *testing.T) {
	needs(t, "chromium")
	script := bundle(t)
	s := within(t, database(t), rt.Always(func(turn *rt.Turn) rt.Reply {
		if !strings.Contains(turn.Prompt(), "story") {
			return react(turn)
		}
		var words strings.Builder
		for i := range 4000 { // it is stopped long before the end
			fmt.Fprintf(&words, "word%d ", i)
		}
		return rt.Text(words.String()).Paced(20 * time.Millisecond)
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
		req, err := aisdk.ReadRequest(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c, err := s.store.Chat(r.Context(), "ann", req.ChatID)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		run, err := s.store.Post(r.Context(), "ann", c.ID, chatstore.Message{
			Version: c.Version, Parent: c.Head, Text: req.Prompt, Parts: req.Parts, Decisions: req.Decisions,
		})
		if err == nil {
			err = s.hub.Start(r.Context(), c.ID, func(ctx context.Context) iter.Seq2[fnloop.Event, error] { return run.Events(ctx, s.loop) })
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = aisdk.Write(w, s.hub.Follow(r.Context(), c.ID, ""), aisdk.Options{View: view})
	})
	mux.HandleFunc("GET /api/chat/{chat}/stream", func(w http.ResponseWriter, r *http.Request) {
		if id := r.PathValue("chat"); s.hub.Running(id) {
			_ = aisdk.Write(w, s.hub.Follow(r.Context(), id, ""), aisdk.Options{View: view})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /api/chat/{chat}/stop", func(w http.ResponseWriter, r *http.Request) {
		s.hub.Stop(r.PathValue("chat"), errStopped)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /usechat.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, script) })
	mux.HandleFunc("GET /{chat}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><div id="root"></div><script src="/usechat.js"></script>`)
	})
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)

	c, err := s.store.NewChat(t.Context(), "ann")
	require.NoError(t, err)
	b := browse(t, web.URL+"/"+c.ID)
	say := func(text string) {
		t.Helper()
		b.until("document.querySelector('#status')?.textContent === 'ready'")
		b.do(chromedp.SendKeys(chromedp.CSS("#text"), text+"\r"))
	}
	ready := func() {
		t.Helper()
		b.until("document.querySelector('#status').textContent === 'ready'")
		assert.Empty(t, b.textOf("#error"))
	}
	html := func() string { t.Helper(); return b.textOf("main") }

	say("Which orders are there?")
	b.shows("Mina has two orders")
	ready()
	assert.Equal(t, 2, eval[int](b, "document.querySelectorAll('.tool[data-state=output-available]').length"))
	assert.Contains(t, html(), "rain jacket", "outputs are shown")

	say("A refund of A-1001, please.")
	b.click(".approve")
	b.shows("The answer to the refund was: refunded A-1001")
	ready()
	assert.Equal(t, 2, eval[int](b, "document.querySelectorAll('section.assistant').length"), "the message that asked goes on")
	var refund string
	require.NoError(t, s.store.DB.QueryRowContext(t.Context(), "SELECT refund FROM orders WHERE id = 'A-1001'").Scan(&refund))
	assert.NotEmpty(t, refund)

	say("Tell me a story.")
	b.shows("word5 ")
	b.do(chromedp.Reload())
	b.shows("word10 ")
	assert.Contains(t, html(), "word0 word1 ", "the answer is shown from its beginning")
	b.click("#stop")
	ready()
	assert.NotContains(t, html(), "word3999")
	require.Eventually(t, func() bool { return !s.hub.Running(c.ID) }, 10*time.Second, 10*time.Millisecond)
	c, err = s.store.Chat(t.Context(), "ann", c.ID)
	require.NoError(t, err)
	stopped, err := s.store.Run(t.Context(), c, c.Head)
	require.NoError(t, err)
	assert.Equal(t, fnloop.StopCancelled, stopped.Answer.Stop)

	say("Are you there?")
	b.shows("I am a scripted model")
	ready()
}
