//go:build !unix || aix || solaris

package session

import "os"

// hold does nothing: two processes at one session are not kept apart here.
func hold(*os.File) error { return nil }

// rename gives f the name of the file old. Both are closed before, since the
// system may not rename files that are open.
func rename(f, old *os.File, name string) error {
	f.Close()
	old.Close()
	return os.Rename(f.Name(), name)
}
