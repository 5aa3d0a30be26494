package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fnloop/fnloop/interpreter"
)

// kept are the files of a conversation that are on this machine, by their names in
// the interpreter's folder: those of --file, and those that --out keeps. Another
// interpreter of the conversation gets them again, another day too. It is safe for
// concurrent use, as cells and what stores the conversation are.
type kept struct {
	mu    sync.Mutex
	paths map[string]string
}

// set replaces all of them.
func (k *kept) set(paths map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paths = maps.Clone(paths)
}

// all gives a copy.
func (k *kept) all() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.paths)
}

// add takes a file up, unless its place cannot be told.
func (k *kept) add(name, path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.paths == nil {
		k.paths = map[string]string{}
	}
	k.paths[name] = path
}

// remove forgets a file that a program has removed.
func (k *kept) remove(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.paths, name)
}

// onOpen puts the files of the conversation into a new interpreter, as they are now.
func (q *question) onOpen(ctx context.Context, s *interpreter.Session) error {
	files := q.kept.all()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := os.Open(files[name])
		if err != nil { // the model is told when it looks for it
			q.progress.Note(fmt.Sprintf("python: %s could not be put into the interpreter again: %s: %v", name, files[name], cause(err)))
			continue
		}
		err = s.Put(ctx, name, f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", files[name], err)
		}
	}
	return nil
}
