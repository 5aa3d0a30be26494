package language

import (
	"context"
	"fmt"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/lazy"
)

// A Finder finds the languages of a runner's sandboxes, once. The zero value is
// ready and safe for concurrent use.
type Finder struct {
	set lazy.Value[Set]
}

// Find is what the sandboxes have, in which run runs programs of Python. Those
// of them that look for something provided are told that it is there. A failure
// is forgotten, and the next call looks again.
func (f *Finder) Find(ctx context.Context, run func(context.Context, fnloop.Program) (fnloop.Result, error), provided ...string) (Set, error) {
	s, err := f.set.Enter(ctx, func(ctx context.Context) (Set, error) {
		res, err := run(ctx, fnloop.Program{Source: find(provided)})
		if err != nil {
			return Set{}, err
		}
		if res.ExitCode == nil || *res.ExitCode != 0 {
			return Set{}, fmt.Errorf("the program that looks for languages failed: %.500s", res.Text())
		}
		return read(res.Stdout)
	})
	if err == nil {
		f.set.Leave()
	}
	return s, err
}
