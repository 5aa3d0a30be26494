// Release builds what a release of askpy consists of: for each system an archive
// and its bill of materials, and the checksums of all of them.
//
//	go run ./internal/release [-tag v0.1.0] [-out dist] [GOOS/GOARCH...]
//
// It publishes nothing. Without systems it builds for all. The same commit and
// the same Go make the same bytes.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fnloop/fnloop/internal/version"
)

// systems are those that a release is made for.
var systems = []string{
	"darwin/amd64", "darwin/arm64",
	"linux/amd64", "linux/arm64",
	"windows/amd64", "windows/arm64",
}

// documents go into each archive beside the program.
var documents = []string{"CHANGELOG.md", "LICENSE", "README.md"}

func main() {
	tag := flag.String("tag", "", "the tag that is released; it has to be that of the version")
	out := flag.String("out", "dist", "the folder to write to")
	flag.Parse()
	if err := release(compile, *tag, *out, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release writes the files of a release into the folder out, which it empties
// first, and their names to w.
func release(compile compiler, tag, out string, wanted []string, w io.Writer) error {
	if want := "v" + version.Version; tag != "" && tag != want {
		return fmt.Errorf("the tag is %s and the version %s; change internal/version or the tag", tag, want)
	}
	for _, s := range wanted {
		if !slices.Contains(systems, s) {
			return fmt.Errorf("unknown system %q; there are %s", s, strings.Join(systems, ", "))
		}
	}
	if len(wanted) == 0 {
		wanted = systems
	}
	changed, err := committed()
	if err != nil {
		return err
	}
	notes, err := changes(version.Version)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, s := range wanted {
		goos, goarch, _ := strings.Cut(s, "/")
		written, err := build(compile, out, goos, goarch, changed)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		for _, name := range written {
			data, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				return err
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
			fmt.Fprintf(w, "%8.1f MB  %s\n", float64(len(data))/1e6, filepath.Join(out, name))
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "checksums.txt"), sums.Bytes(), 0o644),
		os.WriteFile(filepath.Join(out, "notes.md"), []byte(notes), 0o644),
	)
}

// changes is what CHANGELOG.md says of a version, which has to be dated.
func changes(of string) (string, error) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return "", err
	}
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(of) + `\] - \d{4}-\d\d-\d\d$`).FindIndex(text)
	if heading == nil {
		return "", fmt.Errorf("CHANGELOG.md has no dated section %s; it should begin with ## [%[1]s] - and the day", of)
	}
	section := string(text[heading[1]:])
	if end := regexp.MustCompile(`(?m)^(## |\[.*\]: )`).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	return strings.TrimSpace(section) + "\n", nil
}

// committed is the time of the commit, which the files in archives get.
func committed() (time.Time, error) {
	out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("asking git for the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// A compiler builds askpy for a system, into a file of this name.
type compiler func(file, goos, goarch string) error

func compile(file, goos, goarch string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, "./cmd/askpy")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		return nil
	}
	said, err := exec.Command(file, "--version").Output()
	if err != nil || !strings.HasPrefix(string(said), "askpy "+version.Version+" ") {
		return fmt.Errorf("askpy --version said %q (%v), want %s", said, err, version.Version)
	}
	return nil
}

// build makes the archive and the bill of materials for one system, and returns
// their names.
func build(compile compiler, out, goos, goarch string, changed time.Time) ([]string, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := "askpy"
	if goos == "windows" {
		name += ".exe"
	}
	program := filepath.Join(dir, name)
	if err := compile(program, goos, goarch); err != nil {
		return nil, err
	}

	base := fmt.Sprintf("askpy_%s_%s_%s", version.Version, goos, goarch)
	archive, pack := base+".tar.gz", tarball
	if goos == "windows" {
		archive, pack = base+".zip", zipped
	}
	data, err := pack(append([]string{program}, documents...), changed)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	bill, err := billOfMaterials(info, changed)
	if err != nil {
		return nil, err
	}
	sbom := base + ".cdx.json"
	return []string{archive, sbom}, errors.Join(
		os.WriteFile(filepath.Join(out, archive), data, 0o644),
		os.WriteFile(filepath.Join(out, sbom), bill, 0o644),
	)
}

// mode is that of a file in an archive: the program, which comes first, can be
// run.
func mode(i int) os.FileMode {
	if i == 0 {
		return 0o755
	}
	return 0o644
}

func tarball(files []string, changed time.Time) ([]byte, error) {
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: filepath.Base(file), Size: int64(len(data)),
			Mode: int64(mode(i)), ModTime: changed, Format: tar.FormatUSTAR,
		}
		if err := tw.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := tw.Write(data); err != nil {
			return nil, err
		}
	}
	err := errors.Join(tw.Close(), gz.Close())
	return b.Bytes(), err
}

func zipped(files []string, changed time.Time) ([]byte, error) {
	var b bytes.Buffer
	zw := zip.NewWriter(&b)
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		header := &zip.FileHeader{Name: filepath.Base(file), Method: zip.Deflate, Modified: changed}
		header.SetMode(mode(i))
		entry, err := zw.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(data); err != nil {
			return nil, err
		}
	}
	err := zw.Close()
	return b.Bytes(), err
}
