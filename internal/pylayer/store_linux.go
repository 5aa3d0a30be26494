package pylayer

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/flock"
)

// A Store keeps layers in a folder of this machine, for all processes of a user.
//
// Each layer has a folder with the name of its key:
//
//	KEY/tree        what sandboxes get to see
//	KEY/layer.json  what it was made as; its time is when it was last asked for
//	KEY.lock        locked by who makes it
//	KEY.part        what is being made
//
// Who uses a layer holds a shared lock on its folder. A layer that is to go is
// renamed first, and removed when nobody has a lock on it.
type Store struct{ dir string }

// OpenStore opens the store of this user: $XDG_CACHE_HOME/fnloop/packages, or
// else, for root, /var/cache/fnloop/packages, as programs of root's are another
// user, who cannot reach what is in root's home.
func OpenStore() (*Store, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		cache = "/var/cache"
		if os.Geteuid() != 0 {
			var err error
			if cache, err = os.UserCacheDir(); err != nil {
				return nil, fmt.Errorf("there is no folder to keep them in: %w", err)
			}
		}
	}
	s := &Store{filepath.Join(cache, "fnloop", "packages")}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("they cannot be kept: %w", err)
	}
	return s, nil
}

// overflow is who owns what is a user's that is not in this process's namespace.
const overflow = 65534

// check makes the folder, and sees that it is this user's alone to write.
func (s *Store) check() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o755); err == nil {
		if err := os.Chmod(s.dir, 0o755); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	if stat := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others can write to the folder %s, or it is not this user's", s.dir)
	}
	// Who can write to one above can put another in its place.
	above, err := filepath.EvalSymlinks(filepath.Dir(s.dir))
	if err != nil {
		return err
	}
	for ; ; above = filepath.Dir(above) {
		if info, err = os.Lstat(above); err != nil {
			return err
		}
		uid := int(info.Sys().(*syscall.Stat_t).Uid)
		if uid != 0 && uid != os.Geteuid() && uid != overflow || info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("the folder %s, which has %s, is another user's, or everybody can write to it", above, s.dir)
		}
		if above == "/" {
			return nil
		}
	}
}

// A Layer is one that is used. It must be closed.
type Layer struct {
	// Dir has its files.
	Dir string

	lock *os.File
}

// Close ends the use.
func (l *Layer) Close() error { return l.lock.Close() }

// record is what is kept of a layer beside its files.
type record struct {
	Key      string    `json:"key"`
	Packages string    `json:"packages"` // for people
	Made     time.Time `json:"made"`
	Content  string    `json:"content"` // the sum of its files
	Files    string    `json:"files"`   // the sum of what the file system says of them
}

// Open gives the layer of a key and counts as its use. Where there is none it is
// made: build gets an empty folder that is [InstallDir] to the installer. Of all
// processes that ask at once one does that while the others wait; told gets to
// know of waits and of layers that have to be made again.
func (s *Store) Open(ctx context.Context, key, packages string, told func(string), build func(ctx context.Context, scratch string) error) (*Layer, error) {
	defer s.sweep(key)
	l, err := s.use(key)
	if err == nil {
		return l, nil
	}
	unlock, err := Lock(ctx, filepath.Join(s.dir, key+".lock"), told)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l, err = s.use(key); err == nil {
		return l, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		told(fmt.Sprintf("the packages are made again: %v", err))
		if err := s.discard(key); err != nil {
			return nil, err
		}
	}
	if err := s.make(ctx, key, packages, build); err != nil {
		return nil, err
	}
	if l, err = s.use(key); err != nil {
		return nil, &fnloop.PackageError{Field: "Packages", Reason: err.Error()}
	}
	return l, nil
}

// use begins the use of a layer that is there and as it was made. The error is
// one of fs.ErrNotExist where there is none.
func (s *Store) use(key string) (*Layer, error) {
	dir := filepath.Join(s.dir, key)
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if !flock.Shared(f) { // it is about to be removed
		f.Close()
		return nil, errors.New("they are being removed")
	}
	l := &Layer{Dir: filepath.Join(dir, "tree"), lock: f}
	err = s.verify(key, l.Dir)
	if err == nil {
		now := time.Now()
		err = os.Chtimes(filepath.Join(dir, "layer.json"), now, now)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("they are not complete: %v", err)
		}
		return nil, err
	}
	return l, nil
}

// errChanged is the error of a layer that is not what was made.
var errChanged = errors.New("they were changed after they were installed")

// verify reports whether a layer is what was made. The file system's word for each
// file is compared, of which the time of the last change cannot be chosen. Where
// that differs, as after a copy of the store, the contents are read.
func (s *Store) verify(key, tree string) error {
	name := filepath.Join(s.dir, key, "layer.json")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil || r.Key != key {
		return errChanged
	}
	files, err := fileSum(tree)
	if err != nil {
		return err
	}
	if files == r.Files {
		return nil
	}
	content, err := contentSum(tree)
	if err != nil || content != r.Content {
		return errChanged
	}
	r.Files = files
	return writeRecord(name, r)
}

func writeRecord(name string, r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(name+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	return err
}

// fileSum is a sum of what the file system says of each file. It is asked at every
// first use, and there may be ten thousand files.
func fileSum(tree string) (string, error) {
	sum := sha256.New()
	var buf []byte
	var add func(dir string) error
	add = func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range append(entries, nil) {
			name, path := "", dir
			if e != nil {
				name, path = e.Name(), dir+"/"+e.Name()
			}
			var st syscall.Stat_t
			if err := syscall.Lstat(path, &st); err != nil {
				return &fs.PathError{Op: "lstat", Path: path, Err: err}
			}
			buf = append(append(buf[:0], name...), 0)
			for _, n := range []int64{
				int64(st.Mode), int64(st.Uid), int64(st.Gid), st.Size, int64(st.Ino),
				int64(st.Mtim.Sec), int64(st.Mtim.Nsec), int64(st.Ctim.Sec), int64(st.Ctim.Nsec),
			} {
				buf = binary.LittleEndian.AppendUint64(buf, uint64(n))
			}
			sum.Write(buf)
			if e != nil && e.IsDir() {
				if err := add(path); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := add(tree)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// contentSum is that of [Copy].
func contentSum(tree string) (string, error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return transfer(root, func(_ *tar.Header, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// transfer gives put the files of a folder.
func transfer(root *os.Root, put func(*tar.Header, io.Reader) error) (string, error) {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(Archive(root, w))
	}()
	sum, err := Copy(r, "", put)
	r.CloseWithError(errors.New("no more is wanted"))
	<-done
	return sum, err
}

// make makes a layer. The lock is held.
func (s *Store) make(ctx context.Context, key, packages string, build func(ctx context.Context, scratch string) error) error {
	part := filepath.Join(s.dir, key+".part")
	if err := removeAll(part); err != nil { // of one that was killed
		return storeError(err)
	}
	defer removeAll(part) //nolint:errcheck // the next one tries again
	scratch, tree := filepath.Join(part, "scratch"), filepath.Join(part, "tree")
	for _, dir := range []struct {
		name string
		mode fs.FileMode
	}{
		// A build can leave files that run with the rights of their owner. Other users
		// do not get at them.
		{part, 0o700},
		{scratch, 0o755},
		{tree, 0o755},
	} {
		err := os.Mkdir(dir.name, dir.mode)
		if err == nil {
			err = os.Chmod(dir.name, dir.mode) // whatever the umask is
		}
		if err != nil {
			return storeError(err)
		}
	}
	if err := build(ctx, scratch); err != nil {
		return err
	}
	r := record{Key: key, Packages: packages, Made: time.Now().UTC().Truncate(time.Second)}
	from, err := openWithin(scratch, "python")
	if err == nil {
		defer from.Close()
		var to *os.Root
		if to, err = os.OpenRoot(tree); err == nil {
			defer to.Close()
			r.Content, err = transfer(from, func(h *tar.Header, f io.Reader) error { return extract(to, h, f) })
		}
	}
	if err == nil {
		err = removeAll(scratch)
	}
	if err == nil {
		r.Files, err = fileSum(tree)
	}
	if err == nil {
		err = writeRecord(filepath.Join(part, "layer.json"), r)
	}
	if err == nil {
		err = os.Chmod(part, 0o755)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(s.dir, key))
	}
	if err != nil {
		return storeError(err)
	}
	return nil
}

func storeError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("the disk is full: %w", err)
	}
	return &fnloop.PackageError{Field: "Packages", Reason: err.Error()}
}

// openWithin opens a folder of dir. A build can have put a link in its place, which
// is not followed out of dir.
func openWithin(dir, name string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenRoot(name)
}

// removeAll removes a folder, also one in which a build has made folders that
// cannot be written.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	if root, err := os.OpenRoot(dir); err == nil {
		_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = root.Chmod(name, 0o700) // what it did not help is said below
			}
			return nil
		})
		root.Close()
	}
	return os.RemoveAll(dir)
}

const discarded = ".old-"

// discard puts a layer aside, for sweep to remove when nobody uses it any more.
func (s *Store) discard(key string) error {
	return os.Rename(filepath.Join(s.dir, key), filepath.Join(s.dir, discarded+key+"-"+rand.Text()))
}

// sweep removes what nobody has used for long, but for the layer of a key, and
// what was put aside. What fails is tried again the next time.
func (s *Store) sweep(but string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(s.dir, e.Name())
		key, part := strings.CutSuffix(e.Name(), ".part")
		lock := filepath.Join(s.dir, key+".lock")
		record := filepath.Join(name, "layer.json")
		switch {
		case strings.HasPrefix(e.Name(), discarded):
			alone(name, os.O_RDONLY, func() { _ = removeAll(name) })
		case !e.IsDir() || key == but:
		case part:
			// Left behind by one that was killed, if nobody has the lock.
			if old(name) {
				alone(lock, os.O_RDWR|os.O_CREATE, func() { _ = removeAll(name) })
			}
		case old(record):
			alone(lock, os.O_RDWR|os.O_CREATE, func() {
				alone(name, os.O_RDONLY, func() { // so nobody begins to use it now
					if old(record) && s.discard(key) == nil {
						os.Remove(lock)
					}
				})
			})
		}
	}
}

func old(file string) bool {
	info, err := os.Stat(file)
	return err == nil && time.Since(info.ModTime()) > Unused
}

// alone calls f with the lock on a file or folder, unless somebody has that.
func alone(name string, flag int, f func()) {
	lock, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return
	}
	defer lock.Close()
	if flock.Exclusive(lock) {
		f()
	}
}
