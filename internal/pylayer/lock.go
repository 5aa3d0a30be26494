package pylayer

import (
	"context"
	"fmt"
	"os"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/flock"
)

// Lock locks a file, which is made, so that of all processes one makes a layer.
// Told gets to know of a wait.
func Lock(ctx context.Context, name string, told func(string)) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, &fnloop.PackageError{Field: "Packages", Reason: fmt.Sprintf("they cannot be kept: %v", err)}
		}
		if flock.Supported && !flock.Exclusive(f) {
			told("another process installs the packages; waiting for it")
			if err := flock.Wait(ctx, f); err != nil {
				f.Close()
				return nil, err
			}
		}
		// It may have been removed in between.
		mine, err := f.Stat()
		if err == nil {
			var there os.FileInfo
			if there, err = os.Stat(name); err == nil && os.SameFile(mine, there) {
				return func() { f.Close() }, nil
			}
		}
		f.Close()
	}
}
