package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fnloop/fnloop"
)

// A chosen is a runner of which the model is offered some languages.
type chosen struct {
	fnloop.Runner
	env fnloop.Environment
}

func (c chosen) Unwrap() fnloop.Runner { return c.Runner }

// Inspect implements [fnloop.Inspector].
func (c chosen) Inspect(context.Context) (fnloop.Environment, error) { return c.env, nil }

// chooseLanguages is r with the languages of that name, all of which it must
// have.
func chooseLanguages(ctx context.Context, r fnloop.Runner, names []string) (fnloop.Runner, error) {
	env, err := describe(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(env.Languages) == 0 {
		env.Languages = []fnloop.Language{{Name: fnloop.LanguagePython, Version: env.Python}}
	}
	var there []string
	for _, l := range env.Languages {
		there = append(there, l.Name)
	}
	for _, name := range names {
		if !slices.Contains(there, name) {
			return nil, fmt.Errorf("--languages: %q is not there; the runner %s has %s", name, runnerName(r), strings.Join(there, ", "))
		}
	}
	env.Languages = slices.DeleteFunc(slices.Clone(env.Languages), func(l fnloop.Language) bool { return !slices.Contains(names, l.Name) })
	return chosen{r, env}, nil
}

// describe is what r says of its sandbox.
func describe(ctx context.Context, r fnloop.Runner) (fnloop.Environment, error) {
	if i, ok := fnloop.RunnerAs[fnloop.Inspector](r); ok {
		return i.Inspect(ctx)
	}
	if d, ok := fnloop.RunnerAs[fnloop.Describer](r); ok {
		return d.Environment(), nil
	}
	return fnloop.Environment{}, nil
}
