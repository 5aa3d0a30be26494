package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/fake"
)

// auto is the name under which askpy chooses among candidates.
const auto = "auto"

// runners make a runner that has run a program already, or say why this host
// cannot have one.
var runners = map[string]func(context.Context, *progress) (fnloop.Runner, error){
	"bubblewrap": newBubblewrap,
	"fake":       newFake,
}

// candidates are what auto tries, the best first. The fake is none of them: a
// model that believes its programs ran must not be fooled unasked.
var candidates = []string{"bubblewrap"}

func runnerNames() []string {
	return append([]string{auto}, slices.Sorted(maps.Keys(runners))...)
}

// openRunner makes the runner of that name.
func openRunner(ctx context.Context, name string, p *progress) (fnloop.Runner, error) {
	if name != auto {
		return runners[name](ctx, p)
	}
	var reasons []string
	for _, name := range candidates {
		r, err := runners[name](ctx, p)
		if err == nil {
			p.detail("auto: took " + name)
			return r, nil
		}
		p.detail(fmt.Sprintf("auto: did not take %s: %v", name, err))
		reasons = append(reasons, err.Error())
	}
	return nil, errors.New("no runner can isolate programs on this machine: " + strings.Join(reasons, "; "))
}

func newBubblewrap(ctx context.Context, p *progress) (fnloop.Runner, error) {
	r := new(bubblewrap.Runner)
	protection, err := r.Protection(ctx)
	if err != nil {
		return nil, err
	}
	p.detail(fmt.Sprintf("bubblewrap %s with Python %s (%s)", protection.Version, protection.PythonVersion, protection.Python))
	for _, s := range protection.Missing {
		p.detail("bubblewrap: " + s)
	}
	return r, nil
}

func newFake(_ context.Context, p *progress) (fnloop.Runner, error) {
	p.note("runner fake: programs are not run")
	res := fake.Exit(0, "")
	res.Stderr = "this program was not run: the runner is a fake\n"
	return &fake.Runner{Results: []fnloop.Result{res}}, nil
}
