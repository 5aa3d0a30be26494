package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/version"
)

// itself stands in for a build of askpy, which takes a minute: the program that
// runs this test is one of this module too.
func itself(file, _, _ string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o700)
}

func TestRelease(t *testing.T) {
	t.Chdir("../..")
	out := filepath.Join(t.TempDir(), "dist")
	var said strings.Builder
	require.NoError(t, release(itself, "v"+version.Version, out, []string{"linux/arm64", "windows/amd64"}, &said))

	sums, err := os.ReadFile(filepath.Join(out, "checksums.txt"))
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, line)
		names = append(names, strings.TrimPrefix(name, "askpy_"+version.Version+"_"))
		assert.Contains(t, said.String(), name)
		data, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		got := sha256.Sum256(data)
		assert.Equal(t, hex.EncodeToString(got[:]), sum)
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		var b bill
		require.NoError(t, json.Unmarshal(data, &b))
		assert.Equal(t, "pkg:golang/github.com/fnloop/fnloop@v"+version.Version, b.Metadata.Component.PURL)
		assert.NotEmpty(t, b.Components)
	}
	assert.Equal(t, []string{
		"linux_arm64.tar.gz", "linux_arm64.cdx.json", "windows_amd64.zip", "windows_amd64.cdx.json",
	}, names)

	notes, err := os.ReadFile(filepath.Join(out, "notes.md"))
	require.NoError(t, err)
	assert.Contains(t, string(notes), "### Added\n")
	assert.NotContains(t, string(notes), "\n## ", "it is one section of the changelog")
}

func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "github.com/fnloop/fnloop", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.2.3", Sum: "h1:abc="},
			{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1"}},
		},
	}
	got, err := billOfMaterials(info, time.Date(2026, 12, 1, 10, 30, 0, 0, time.UTC))
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": {"timestamp": "2026-12-01T10:30:00Z", "component": {
			"type": "application", "name": "github.com/fnloop/fnloop", "version": "v`+version.Version+`",
			"purl": "pkg:golang/github.com/fnloop/fnloop@v`+version.Version+`",
			"bom-ref": "pkg:golang/github.com/fnloop/fnloop@v`+version.Version+`"}},
		"components": [
			{"type": "library", "name": "std", "version": "1.26.8", "purl": "pkg:golang/std@1.26.8", "bom-ref": "pkg:golang/std@1.26.8"},
			{"type": "library", "name": "example.com/a", "version": "v1.2.3", "purl": "pkg:golang/example.com/a@v1.2.3",
			 "bom-ref": "pkg:golang/example.com/a@v1.2.3", "properties": [{"name": "go.sum", "value": "h1:abc="}]},
			{"type": "library", "name": "example.com/fork", "version": "v1.0.1", "purl": "pkg:golang/example.com/fork@v1.0.1",
			 "bom-ref": "pkg:golang/example.com/fork@v1.0.1"}
		]}`, string(got))
}

func TestRelease_refuses(t *testing.T) {
	out := t.TempDir()
	kept := filepath.Join(out, "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	for _, test := range []struct{ name, tag, system, want string }{
		{"another version's tag", "v9.0.0", "", "the tag is v9.0.0 and the version v" + version.Version},
		{"a tag without its v", version.Version, "", "the tag is " + version.Version},
		{"a system that has no release", "", "plan9/386", `unknown system "plan9/386"; there are darwin/amd64`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var systems []string
			if test.system != "" {
				systems = []string{test.system}
			}
			assert.ErrorContains(t, release(itself, test.tag, out, systems, io.Discard), test.want)
			assert.FileExists(t, kept, "nothing may be removed for a mistake")
		})
	}
}

// Both forms hold the same files, and the program can be run.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"askpy", "LICENSE"} {
		files = append(files, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(files[len(files)-1], []byte("this is "+name), 0o600))
	}
	changed := time.Date(2026, 12, 1, 10, 30, 0, 0, time.UTC)

	packed, err := tarball(files, changed)
	require.NoError(t, err)
	again, err := tarball(files, changed)
	require.NoError(t, err)
	assert.Equal(t, packed, again)
	gz, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	tr := tar.NewReader(gz)
	for i, name := range []string{"askpy", "LICENSE"} {
		header, err := tr.Next()
		require.NoError(t, err)
		assert.Equal(t, name, header.Name)
		assert.Equal(t, int64(mode(i)), header.Mode)
		assert.True(t, changed.Equal(header.ModTime))
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		assert.Equal(t, "this is "+name, string(data))
	}
	_, err = tr.Next()
	assert.Equal(t, io.EOF, err)

	packed, err = zipped(files, changed)
	require.NoError(t, err)
	again, err = zipped(files, changed)
	require.NoError(t, err)
	assert.Equal(t, packed, again)
	zr, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	require.NoError(t, err)
	require.Len(t, zr.File, 2)
	for i, f := range zr.File {
		assert.Equal(t, filepath.Base(files[i]), f.Name)
		assert.Equal(t, mode(i), f.Mode())
		data, err := zr.Open(f.Name)
		require.NoError(t, err)
		text, err := io.ReadAll(data)
		require.NoError(t, err)
		assert.Equal(t, "this is "+f.Name, string(text))
	}
}
