package bubblewrap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// findTime is the limit of the program that looks for languages.
const findTime = time.Minute

// languages are those that sandboxes have.
func (r *Runner) languages(ctx context.Context, h *host) (language.Set, error) {
	var provided []string
	if h.golang.dir != "" {
		provided = append(provided, language.GoCache)
	}
	s, err := h.languages.Find(ctx, func(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
		limits := fnloop.Limits{Time: findTime, Memory: r.bounds().Limits(fnloop.Limits{}).Memory}
		return r.run(ctx, h, p, nil, limits, time.Now())
	}, provided...)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("bubblewrap: %w", err)
	}
	return s, err
}

// command is how p is run, nil for Python, once all that it needs is there.
func (r *Runner) command(ctx context.Context, h *host, p fnloop.Program, limits fnloop.Limits) (*supervisor.Command, error) {
	if language.Python(p) {
		return nil, nil
	}
	s, err := r.languages(ctx, h)
	if err != nil {
		return nil, err
	}
	command, err := s.Command(p, limits.Memory)
	if err == nil && p.Language == fnloop.LanguageGo {
		err = h.golang.ready(ctx)
	}
	return command, err
}

// searchPath is where programs look for commands: first in what was bound.
func (h *host) searchPath() string {
	var path []string
	for _, dir := range h.binds {
		if info, err := os.Stat(filepath.Join(dir, "bin")); err == nil && info.IsDir() {
			path = append(path, filepath.Join(dir, "bin"))
		}
	}
	return strings.Join(append(path, "/usr/local/bin", "/usr/bin", "/bin"), ":")
}
