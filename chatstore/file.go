package chatstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/fnloop/fnloop/interpreter"
)

// A File is one that an owner has uploaded or that code has made. The name of one
// in the work folder can be a path with slashes.
type File struct {
	Name string
	Data []byte

	picture bool // to be looked at; it is not in the work folder
}

// limit is a bound of which zero is a default and a negative one none.
func limit(n, otherwise int64) int64 {
	if n < 0 {
		return 1 << 62
	}
	return cmp.Or(n, otherwise)
}

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// putFiles stores files in place of those of the same names. That the chat has no
// room for them is an [*InputError], and tx has to be rolled back then.
func (s *Store) putFiles(ctx context.Context, tx *sql.Tx, chat string, files []File) error {
	for _, f := range files {
		if _, err := tx.ExecContext(ctx, `INSERT INTO fnloop_files (chat, name, picture, size, data) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (chat, name) DO UPDATE SET picture = EXCLUDED.picture, size = EXCLUDED.size, data = EXCLUDED.data`,
			chat, f.Name, f.picture, len(f.Data), f.Data); err != nil {
			return fmt.Errorf("chatstore: storing the file %s: %w", f.Name, err)
		}
	}
	if len(files) == 0 {
		return nil
	}
	var all int64
	if err := tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(size), 0) FROM fnloop_files WHERE chat = $1`, chat).Scan(&all); err != nil {
		return fmt.Errorf("chatstore: the size of the files: %w", err)
	}
	if most := limit(s.MaxFiles, DefaultMaxFiles); all > most {
		return &InputError{"file", fmt.Sprintf("The files of a chat may have %s together.", size(most))}
	}
	return nil
}

// putFile is putFiles for one file that a run has made.
func (s *Store) putFile(ctx context.Context, r *Run, f File) error {
	return r.Hold(ctx, func(tx *sql.Tx) error { return s.putFiles(ctx, tx, r.Chat, []File{f}) })
}

// File reads a file of a chat.
func (s *Store) File(ctx context.Context, c Chat, name string) (File, error) {
	return s.file(ctx, c.ID, name)
}

func (s *Store) file(ctx context.Context, chat, name string) (File, error) {
	f := File{Name: name}
	err := s.one(ctx, []any{&f.picture, &f.Data}, `SELECT picture, data FROM fnloop_files WHERE chat = $1 AND name = $2`, chat, name)
	return f, err
}

// ServeFile answers a request for a file of a chat, or returns an error and has
// written nothing. A file is the work of code that nobody trusts: what is not a
// picture is sent as a download, and a picture with a policy that runs no scripts.
// All the same, a domain of its own for them is better.
func (s *Store) ServeFile(w http.ResponseWriter, r *http.Request, c Chat, name string) error {
	f, err := s.File(r.Context(), c, name)
	if err != nil {
		return err
	}
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
	head.Set("Content-Type", "application/octet-stream")
	if f.picture {
		head.Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(f.Name)), "application/octet-stream"))
	} else {
		head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(f.Name)}))
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.Data))
	return nil
}

// KeepFiles keeps the files of the sessions' conversations in the database: those
// that an owner has uploaded are put into the work folder, those that code makes are
// stored, and a new interpreter gets all of them. The sessions' OnOpen and OnCell
// are called after that. Call it before first use of either.
func (s *Store) KeepFiles(sessions *interpreter.Sessions) {
	s.sessions = sessions
	onOpen, onCell := sessions.OnOpen, sessions.OnCell
	sessions.OnOpen = func(ctx context.Context, session *interpreter.Session) error {
		names, err := s.workFiles(ctx, ChatID(ctx))
		if err == nil {
			err = s.restore(ctx, ChatID(ctx), session, names)
		}
		if err == nil && onOpen != nil {
			err = onOpen(ctx, session)
		}
		return err
	}
	sessions.OnCell = func(ctx context.Context, session *interpreter.Session, e interpreter.Execution) error {
		run, ok := RunFrom(ctx)
		for _, f := range e.Files {
			if !ok || f.Name != clean(f.Name) {
				continue
			}
			if err := s.patiently(ctx, func() error { return s.keep(ctx, run, session, f) }); err != nil {
				return fmt.Errorf("keeping %q: %w", f.Name, err)
			}
		}
		if onCell != nil {
			return onCell(ctx, session, e)
		}
		return nil
	}
}

// workFiles are the names of the files that belong into the work folder of a chat.
func (s *Store) workFiles(ctx context.Context, chat string) (names []string, err error) {
	err = s.all(ctx, func(row scanner) error {
		var name string
		err := row.Scan(&name)
		names = append(names, name)
		return err
	}, `SELECT name FROM fnloop_files WHERE chat = $1 AND NOT picture ORDER BY name`, chat)
	return names, err
}

// restore puts files of the database into the work folder.
func (s *Store) restore(ctx context.Context, chat string, session *interpreter.Session, names []string) error {
	for _, name := range names {
		f, err := s.file(ctx, chat, name)
		if err != nil {
			return err
		}
		if err := session.Put(ctx, name, bytes.NewReader(f.Data)); err != nil {
			return err
		}
	}
	return nil
}

// upload puts the files of the run's prompt into the work folder.
func (r *Run) upload(ctx context.Context) error {
	if len(r.Prompt.Files) == 0 || r.store.sessions == nil {
		return nil
	}
	session, release, err := r.store.sessions.Session(ctx, r.Answer)
	if err != nil {
		return err
	}
	defer release()
	return r.store.restore(ctx, r.Chat, session, r.Prompt.Files)
}

// keep stores a file that code has changed. One for which there is no room is not
// kept, and what was kept under its name goes too.
func (s *Store) keep(ctx context.Context, run *Run, session *interpreter.Session, change interpreter.FileChange) error {
	most := limit(s.MaxFile, DefaultMaxFile)
	if change.Change != interpreter.FileRemoved && change.Size <= most {
		r, err := session.Get(ctx, change.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return s.remove(ctx, run, change.Name) // gone again
		} else if err != nil {
			return err
		}
		defer r.Close()
		data, err := io.ReadAll(io.LimitReader(r, most+1)) // it may have grown since
		if err != nil {
			return err
		}
		if int64(len(data)) <= most {
			err = s.putFile(ctx, run, File{Name: change.Name, Data: data})
			if _, full := errors.AsType[*InputError](err); !full {
				return err
			}
		}
	}
	return s.remove(ctx, run, change.Name)
}

// remove removes a file of the work folder.
func (s *Store) remove(ctx context.Context, r *Run, name string) error {
	return r.Hold(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM fnloop_files WHERE chat = $1 AND name = $2 AND NOT picture`, r.Chat, name)
		return err
	})
}
