package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

//go:embed page
var page embed.FS

// maxUpload is the size of the largest message with its files.
const maxUpload = 32 << 20

var errStopped = errors.New("stopped by the user")

// A server has the chats of many users.
type server struct {
	store    *store
	loop     *fnloop.Loop
	sessions *interpreter.Sessions
	hub      fnloop.Hub
	budget   int64         // tokens of one user in a day
	patience time.Duration // how long a database may be away at the end of a run
	log      *slog.Logger
}

// A refusal is an error whose text is for the user.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

func newID() string { return strings.ToLower(rand.Text()) }

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	files, _ := fs.Sub(page, "page")
	mux.Handle("GET /", http.FileServerFS(files))
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, string) error{
		"GET /chats":                        s.list,
		"POST /chats":                       s.create,
		"GET /chats/{chat}":                 s.get,
		"POST /chats/{chat}/runs":           s.post,
		"POST /chats/{chat}/stop":           s.stop,
		"GET /chats/{chat}/events":          s.follow,
		"GET /chats/{chat}/files/{name...}": s.download,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := errNotFound
			if r.URL.Path == clean(r.URL.Path) {
				err = h(w, r, owner(w, r))
			}
			if err != nil {
				s.fail(w, r, err)
			}
		})
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

// owner tells users apart by a cookie that is made up here. Put your own sign-in
// in its place.
func owner(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie("user")
	if err != nil || len(cookie.Value) < 20 {
		cookie = &http.Cookie{Name: "user", Value: rand.Text(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: 365 * 24 * 3600, Secure: r.TLS != nil}
		http.SetCookie(w, cookie)
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	return hex.EncodeToString(sum[:16])
}

// fail answers with an error that says what to do, and logs what only the host
// can mend.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusServiceUnavailable, "The server has a problem and has changed nothing. Try again."
	var known *refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		status, text = known.status, known.text
	case errors.As(err, &tooLarge):
		status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("A message may have %d MiB with its files.", maxUpload>>20)
	case errors.Is(err, errNotFound):
		status, text = http.StatusNotFound, err.Error()
	case errors.Is(err, errConflict):
		status, text = http.StatusConflict, err.Error()
	case errors.Is(err, fnloop.ErrBusy):
		status, text = http.StatusConflict, "the last message is still being answered; wait for it, or stop it"
	case errors.Is(err, fnloop.ErrDraining):
		text = "The server is shutting down. Your message is kept; continue in a moment."
	default:
		s.log.ErrorContext(r.Context(), "a request failed", "path", r.URL.Path, "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": text})
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

func (s *server) list(w http.ResponseWriter, r *http.Request, owner string) error {
	chats, err := s.store.chats(r.Context(), owner)
	if err != nil {
		return err
	}
	used, err := s.store.tokens(r.Context(), owner)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"chats": chats, "tokens": used, "budget": s.budget})
}

func (s *server) create(w http.ResponseWriter, r *http.Request, owner string) error {
	id := newID()
	if err := s.store.newChat(r.Context(), owner, id); err != nil {
		return err
	}
	return reply(w, http.StatusCreated, chat{ID: id})
}

func (s *server) get(w http.ResponseWriter, r *http.Request, owner string) error {
	c, err := s.store.chat(r.Context(), owner, r.PathValue("chat"))
	if err != nil {
		return err
	}
	running := s.hub.Running(c.ID) // before the runs are read: one that ends in between is followed for nothing
	runs, err := s.store.runs(r.Context(), c)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"chat": c, "runs": runs, "running": running})
}

func (s *server) stop(w http.ResponseWriter, r *http.Request, owner string) error {
	c, err := s.store.chat(r.Context(), owner, r.PathValue("chat"))
	if err != nil {
		return err
	}
	if !s.hub.Stop(c.ID, errStopped) {
		return refuse(http.StatusConflict, "nothing runs in this chat")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) follow(w http.ResponseWriter, r *http.Request, owner string) error {
	c, err := s.store.chat(r.Context(), owner, r.PathValue("chat"))
	if err != nil {
		return err
	}
	s.hub.ServeSSE(w, r, c.ID, fnloop.SSE{View: view})
	return nil
}

func (s *server) download(w http.ResponseWriter, r *http.Request, owner string) error {
	c, err := s.store.chat(r.Context(), owner, r.PathValue("chat"))
	if err != nil {
		return err
	}
	f, err := s.store.file(r.Context(), c.ID, r.PathValue("name"))
	if errors.Is(err, errNotFound) {
		return refuse(http.StatusNotFound, "There is no such file. One that has more than %d MiB, or is beyond the %d MiB of a chat, is not kept.", maxFile>>20, maxFiles>>20)
	} else if err != nil {
		return err
	}
	// The file is the work of code that nobody trusts: it must not run as a page
	// of this site.
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
	w.Header().Set("Content-Type", "application/octet-stream")
	if f.picture {
		w.Header().Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(f.name)), "application/octet-stream"))
	} else {
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(f.name)}))
	}
	_, _ = w.Write(f.data) // a browser that has gone needs no answer
	return nil
}

// post takes a message, decisions on calls that wait for approval, or neither to
// go on where a run was cut short, and begins the run that answers.
func (s *server) post(w http.ResponseWriter, r *http.Request, owner string) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	if err := r.ParseMultipartForm(4 << 20); err != nil {
		return formError(err)
	}
	defer r.MultipartForm.RemoveAll()
	ctx := r.Context()
	c, err := s.store.chat(ctx, owner, r.PathValue("chat"))
	if err != nil {
		return err
	}
	if version, err := strconv.ParseInt(r.FormValue("version"), 10, 64); err != nil {
		return refuse(http.StatusBadRequest, "version is %q, not the number that the chat has", r.FormValue("version"))
	} else if version != c.Version {
		return errConflict
	}
	if s.hub.Running(c.ID) {
		return fnloop.ErrBusy
	}
	used, err := s.store.tokens(ctx, owner)
	if err != nil {
		return err
	}
	if used >= s.budget {
		return refuse(http.StatusTooManyRequests, "You have used %d tokens in the last day, of %d. Come back later.", used, s.budget)
	}
	next := run{ID: newID(), Parent: clean(r.FormValue("parent")), Prompt: prompt{Text: strings.TrimSpace(clean(r.FormValue("text")))}}
	last := run{Answer: new(fnloop.Answer), Ended: true}
	if next.Parent != "" {
		if last, err = s.store.run(ctx, c, next.Parent); err != nil {
			return err
		}
	}
	files, parts, err := readFiles(next.ID, r.MultipartForm.File["file"])
	if err != nil {
		return err
	}
	next.Answer = last.Answer
	switch decisions := r.FormValue("decisions"); {
	case next.Prompt.Text != "" || len(files) > 0:
	case next.Parent != c.Head:
		return refuse(http.StatusBadRequest, "only the last message can be decided on or continued")
	case decisions != "":
		made := make(map[string]fnloop.Decision)
		if err := json.Unmarshal([]byte(decisions), &made); err != nil || len(made) == 0 {
			return refuse(http.StatusBadRequest, "decisions are not JSON like {\"call\": {\"approve\": true}}")
		}
		if err := next.Answer.Decide(made); err != nil {
			return refuse(http.StatusConflict, "%v", err)
		}
	case last.Ended && (last.Answer.Stop == "" || last.Answer.Stop == fnloop.StopAnswered):
		return refuse(http.StatusBadRequest, "the message is empty")
	}
	for _, f := range files {
		if f.picture {
			next.Prompt.Pictures = append(next.Prompt.Pictures, f.name)
		} else {
			next.Prompt.Files = append(next.Prompt.Files, f.name)
		}
	}
	text := next.Prompt.Text
	if len(next.Prompt.Files) > 0 {
		text = strings.TrimSpace(text + "\n\nUploaded to the work folder: " + strings.Join(next.Prompt.Files, ", "))
	}
	next.Answer.AddPrompt(text, parts...)
	if c.Version == 0 {
		c.Title = title(cmp.Or(next.Prompt.Text, "Files"))
	}
	if err := s.store.begin(ctx, c, next, files); err != nil {
		return err
	}
	if err := s.hub.Start(ctx, c.ID, func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
		return s.events(ctx, c, next, s.budget-used)
	}); err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, map[string]string{"run": next.ID})
}

func formError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	return refuse(http.StatusBadRequest, "the message is no multipart form: %v", err)
}

// clean leaves out what PostgreSQL and the API do not take in a text.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "")
}

// title is the beginning of a text.
func title(text string) string {
	const most = 60
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// readFiles reads what was uploaded: pictures become parts of the prompt, and
// everything else belongs into the work folder.
func readFiles(run string, headers []*multipart.FileHeader) (files []file, parts []fnloop.Content, err error) {
	for i, h := range headers {
		name := path.Base(strings.ReplaceAll(h.Filename, `\`, "/"))
		if err := interpreter.CheckName(name); err != nil || strings.HasPrefix(name, ".") || h.Size > maxFile {
			return nil, nil, refuse(http.StatusBadRequest, "The file %q cannot be taken: it needs a plain name and at most %d MiB.", name, maxFile>>20)
		}
		r, err := h.Open()
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return nil, nil, err
		}
		suffix := strings.ToLower(path.Ext(name))
		if !strings.HasPrefix(mime.TypeByExtension(suffix), "image/") || suffix == ".svg" {
			files = append(files, file{name: name, data: data})
			continue
		}
		part, err := fnloop.ImageData(data)
		if err != nil {
			return nil, nil, refuse(http.StatusBadRequest, "The picture %s cannot be sent: %s", name, strings.TrimPrefix(err.Error(), "fnloop: "))
		}
		files = append(files, file{fmt.Sprintf("%s-%d%s", run, i, suffix), true, data})
		parts = append(parts, part)
	}
	return files, parts, nil
}
