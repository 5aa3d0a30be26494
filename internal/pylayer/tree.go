package pylayer

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// links are the only links of a layer, which the installer makes itself.
var links = map[string]bool{"bin/python3": true, "bin/python": true, "lib64": true}

// maxName bounds the length of a name with its folders, in bytes.
const maxName = 1024

var errTooMany = fmt.Errorf("they have more than %d files", MaxEntries)

// epoch is when all files of a layer were changed last: nothing tells when it was
// made, and all tools can write it.
var epoch = time.Unix(315532800, 0).UTC()

// Copy reads the files of a layer from the tar archive of a folder, in which their
// names begin with that of the folder if it is not empty. It gives put each of them
// in turn, with names from the folder on. They were
// made by what is not trusted: plain files and folders within it pass, without
// owners and special modes, and anything else is an error. The sum is one of all
// names, modes and contents.
func Copy(archive io.Reader, folder string, put func(*tar.Header, io.Reader) error) (sum string, err error) {
	all := sha256.New()
	var size int64
	seen := make(map[string]bool)
	r := tar.NewReader(archive)
	for n := 0; ; n++ {
		from, err := r.Next()
		if err == io.EOF {
			return hex.EncodeToString(all.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
		h, err := clean(from, folder)
		switch {
		case err != nil:
			return "", err
		case seen[h.Name]:
			return "", fmt.Errorf("%q is there twice", h.Name)
		case n == MaxEntries:
			return "", errTooMany
		}
		seen[h.Name] = true
		if size += h.Size; size > MaxBytes {
			return "", fmt.Errorf("they are larger than %d MiB", MaxBytes>>20)
		}
		one := sha256.New()
		if err := put(h, io.TeeReader(r, one)); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%q %q %o %d %x\n", h.Name, h.Linkname, h.Mode, h.Size, one.Sum(nil))
	}
}

// clean is the header of what a layer takes over.
func clean(from *tar.Header, folder string) (*tar.Header, error) {
	name, within := strings.TrimSuffix(from.Name, "/"), true
	switch {
	case folder != "" && name == folder:
		name = "."
	case folder != "":
		name, within = strings.CutPrefix(name, folder+"/")
	}
	if !within || !fs.ValidPath(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`) || len(name) > maxName {
		return nil, fmt.Errorf("they have a file with the name %.200q", from.Name)
	}
	to := &tar.Header{Name: name, Typeflag: from.Typeflag, Mode: 0o644, ModTime: epoch, Format: tar.FormatPAX}
	switch from.Typeflag {
	case tar.TypeDir:
		to.Mode = 0o755
	case tar.TypeReg:
		to.Size = from.Size
		if from.Mode&0o111 != 0 {
			to.Mode = 0o755
		}
	case tar.TypeSymlink:
		if !links[name] {
			return nil, fmt.Errorf("they have a link, %q", name)
		}
		to.Linkname, to.Mode = from.Linkname, 0o777
	default:
		return nil, fmt.Errorf("%q is no plain file", name)
	}
	return to, nil
}

// Archive writes the tar archive of what is in a folder, whatever is in there.
func Archive(root *os.Root, to io.Writer) error {
	if err := countable(root, MaxEntries); err != nil {
		return err
	}
	w := tar.NewWriter(to)
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}
		switch info.Mode().Type() {
		case fs.ModeDir:
			h.Typeflag = tar.TypeDir
			return w.WriteHeader(h)
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = root.Readlink(name); err != nil {
				return err
			}
			return w.WriteHeader(h)
		case 0:
			return archiveFile(root, w, h)
		}
		return fmt.Errorf("%q is no plain file", name)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// countable reports more than so many files as an error, before the names of
// all in a folder are in memory at once.
func countable(root *os.Root, most int) error {
	for folders := []string{"."}; len(folders) > 0; {
		last := len(folders) - 1
		name := folders[last]
		folders = folders[:last]
		if len(name) > maxName {
			return fmt.Errorf("they have a file with the name %.200q", name)
		}
		dir, err := root.Open(name)
		for err == nil {
			var some []fs.DirEntry
			some, err = dir.ReadDir(4096)
			if most -= len(some); most < 0 {
				err = errTooMany
			}
			for _, e := range some {
				if e.IsDir() {
					folders = append(folders, path.Join(name, e.Name()))
				}
			}
		}
		if dir != nil {
			dir.Close()
		}
		if err != io.EOF {
			return err
		}
	}
	return nil
}

func archiveFile(root *os.Root, w *tar.Writer, h *tar.Header) error {
	f, err := root.OpenFile(h.Name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is no plain file", h.Name)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, h.Size)
	return err
}

// extract puts one file into a folder.
func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	switch {
	case h.Name == ".":
		return nil
	case h.Typeflag == tar.TypeDir:
		return root.Mkdir(h.Name, fs.FileMode(h.Mode))
	case h.Typeflag == tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	}
	f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(h.Mode))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode)) // whatever the umask is
	}
	return errors.Join(err, f.Close())
}
