package pylayer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/pylayer"
)

// noSettings hides this machine's pip configuration from a test.
func noSettings(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PIP_") || strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "NETRC" {
			t.Setenv(name, "")
		}
	}
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
}

func parse(t *testing.T, packages ...string) *pylayer.List {
	t.Helper()
	l, err := pylayer.Parse(packages, "")
	require.NoError(t, err)
	return l
}

// given is what the program of an install is given.
func given(l *pylayer.List) string { return string(l.Program("", nil).Stdin) }

func TestKey(t *testing.T) {
	noSettings(t)
	key := func(packages ...string) string { return parse(t, packages...).Key("python") }
	same := key("numpy", "pandas >= 2")
	for _, c := range []struct {
		why  string
		list []string
		same bool
	}{
		{"the order has no meaning", []string{"pandas >= 2", "numpy"}, true},
		{"nor has a repetition, or a comment", []string{"numpy # the arrays", "numpy", " pandas  >= 2"}, true},
		{"a version has", []string{"numpy", "pandas >= 3"}, false},
		{"so has another index", []string{"numpy", "pandas >= 2", "-i https://other.example/simple"}, false},
	} {
		assert.Equal(t, c.same, key(c.list...) == same, c.why)
	}
	assert.NotEqual(t, same, parse(t, "numpy", "pandas >= 2").Key("another python"), "another interpreter is another layer")
	assert.NotEqual(t, key("--pre", "-i https://a.example", "x"), key("-i https://b.example", "--pre", "x"))

	t.Setenv("PIP_INDEX_URL", "https://me:one@index.example/simple")
	first := key("numpy")
	t.Setenv("PIP_INDEX_URL", "https://me:two@index.example/simple")
	assert.Equal(t, first, key("numpy"), "credentials change more often than what they open")
	t.Setenv("PIP_INDEX_URL", "https://me:two@another.example/simple")
	assert.NotEqual(t, first, key("numpy"))
	first = key("numpy")
	t.Setenv("PIP_TRUSTED_HOST", "another.example")
	assert.NotEqual(t, first, key("numpy"), "anybody can have been that host")
}

func TestParse_files(t *testing.T) {
	noSettings(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	t.Setenv("INDEX_TOKEN", "t0k3n-of-mine")
	write("more/inner.txt", "scipy\n-c limits.txt\n")
	write("more/limits.txt", "numpy<3\n")
	main := write("requirements.txt", "# comment\r\n--index-url https://user:${INDEX_TOKEN}@index.example/simple\r\nnumpy==2.1 \\\r\n    --hash=sha256:00 # why\r\n-r more/inner.txt\r\n\r\nwheel @ https://host.example/w-1-py3-none-any.whl\r\n")
	l := parse(t, "-r "+main)
	text := given(l)
	assert.Contains(t, text, `"requirements":"--index-url https://user:t0k3n-of-mine@index.example/simple\nnumpy==2.1 --hash=sha256:00\nscipy\nwheel @ https://host.example/w-1-py3-none-any.whl\n"`)
	assert.Contains(t, text, `"constraints":"numpy\u003c3"`)
	assert.NotContains(t, l.String(), "t0k3n")

	_, err := pylayer.Parse([]string{"-r " + write("bad.txt", "numpy\n-e .\n")}, "")
	bad, ok := errors.AsType[*fnloop.PackageError](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, bad.Reason, "bad.txt")
	_, err = pylayer.Parse([]string{"--extra-index-url https://a:hidden-one@x/ --weird", "--weird https://a:hidden-one@x/"}, "")
	assert.NotContains(t, err.Error(), "hidden-one")
}

func TestSettings(t *testing.T) {
	noSettings(t)
	home := os.Getenv("HOME")
	write := func(name, text string) string {
		name = filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	t.Setenv("PIP_CONFIG_FILE", "")
	cert := write("ca.pem", "THE CERTIFICATE")
	wheels := filepath.Join(home, "wheels")
	write(".config/pip/pip.conf", "[global]\nindex-url = https://one.example/simple\nextra_index_url =\n    https://two.example/simple\n    https://robot:pa55w0rd@three.example/simple\ncert = "+cert+"\nno-binary = :all:\n[list]\nformat = json\n[install]\nindex-url: https://four.example/simple\nfind-links = "+wheels+"\n")
	write(".netrc", "machine two.example login me password from-netrc\nmachine unrelated.example login me password not-this\n")
	t.Setenv("PIP_TIMEOUT", "7")
	t.Setenv("HTTPS_PROXY", "http://proxy-user:proxy-pass@proxy.example:3128")
	l := parse(t, "numpy")
	text := given(l)
	for _, want := range []string{
		`index-url = https://four.example/simple\n`, `extra-index-url = https://two.example/simple\n\thttps://three.example/simple\n`,
		`timeout = 7`, `"cert":"THE CERTIFICATE"`, `machine three.example login robot password pa55w0rd\n`,
		`machine two.example login me password from-netrc\n`, `"https_proxy":"http://proxy-user:proxy-pass@proxy.example:3128"`,
	} {
		assert.Contains(t, text, want)
	}
	for _, no := range []string{"not-this", "no-binary =", "format", "one.example"} {
		assert.NotContains(t, text, no)
	}
	assert.Equal(t, []string{wheels}, l.Folders())

	code := 1
	err := l.Failure(fnloop.Result{ExitCode: &code, Stdout: "GET https://robot:pa55w0rd@three.example and pa55w0rd and from-netrc via http://proxy-user:proxy-pass@proxy.example\n", Stderr: "pa55w0rd"}, nil)
	require.Error(t, err)
	for _, secret := range []string{"pa55w0rd", "from-netrc", "proxy-pass"} {
		assert.NotContains(t, err.Error(), secret)
	}
	assert.Contains(t, err.Error(), "three.example")

	t.Setenv("PIP_CONFIG_FILE", filepath.Join(home, "none.conf"))
	_, err = pylayer.Parse([]string{"numpy"}, "")
	assert.ErrorContains(t, err, "PIP_CONFIG_FILE")
}

// Two logins at one host cannot both be in a netrc file.
func TestSettings_twoLogins(t *testing.T) {
	noSettings(t)
	t.Setenv("PIP_INDEX_URL", "https://a:first-pass@host.example/one/simple")
	t.Setenv("PIP_EXTRA_INDEX_URL", "https://b:second-pass@host.example/two/simple https://token-alone@other.example/simple")
	text := given(parse(t, "numpy"))
	assert.Contains(t, text, `machine host.example login a password first-pass\n`)
	assert.Contains(t, text, `https://b:second-pass@host.example/two/simple`)
	assert.Contains(t, text, `https://token-alone@other.example/simple`)
}

func archive(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = "text"
		}
		h.Size = int64(len(text))
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func TestCopy(t *testing.T) {
	for _, c := range []struct {
		why    string
		folder string
		header tar.Header
		want   string // what is put, or empty for an error
	}{
		{"a file", "", tar.Header{Name: "a/b.py", Mode: 0o600}, "a/b.py 644"},
		{"one that can be run", "", tar.Header{Name: "bin/x", Mode: 0o4711, Uid: 7}, "bin/x 755"},
		{"a folder", "", tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o7777}, "a 755"},
		{"below a folder", "python", tar.Header{Name: "python/a"}, "a 644"},
		{"the folder itself", "python", tar.Header{Name: "python/", Typeflag: tar.TypeDir}, ". 755"},
		{"beside the folder", "python", tar.Header{Name: "pythonic/a"}, ""},
		{"out of the folder", "python", tar.Header{Name: "python/../a"}, ""},
		{"absolute", "", tar.Header{Name: "/etc/passwd"}, ""},
		{"up", "", tar.Header{Name: "../a"}, ""},
		{"up in the middle", "", tar.Header{Name: "a/../../b"}, ""},
		{"empty", "", tar.Header{Name: ""}, ""},
		{"control characters", "", tar.Header{Name: "a\nb"}, ""},
		{"another system's separator", "", tar.Header{Name: `a\..\b`}, ""},
		{"a link of ours", "", tar.Header{Name: "bin/python3", Typeflag: tar.TypeSymlink, Linkname: "/usr/bin/python3"}, "bin/python3 777"},
		{"another link", "", tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, ""},
		{"a hard link", "", tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}, ""},
		{"a device", "", tar.Header{Name: "a", Typeflag: tar.TypeChar}, ""},
		{"a pipe", "", tar.Header{Name: "a", Typeflag: tar.TypeFifo}, ""},
	} {
		var got string
		_, err := pylayer.Copy(archive(t, c.header), c.folder, func(h *tar.Header, r io.Reader) error {
			got = h.Name + " " + strings.TrimPrefix(string([]byte{'0' + byte(h.Mode>>6&7), '0' + byte(h.Mode>>3&7), '0' + byte(h.Mode&7)}), "")
			assert.Zero(t, h.Uid)
			assert.Zero(t, h.Mode&0o7000)
			_, err := io.Copy(io.Discard, r)
			return err
		})
		assert.Equal(t, c.want, got, c.why)
		assert.Equal(t, c.want == "", err != nil, "%s: %v", c.why, err)
	}
	_, err := pylayer.Copy(archive(t, tar.Header{Name: "a"}, tar.Header{Name: "a"}), "", func(*tar.Header, io.Reader) error { return nil })
	assert.ErrorContains(t, err, "twice")
	_, err = pylayer.Copy(archive(t, tar.Header{Name: "a"}), "", func(*tar.Header, io.Reader) error { return io.ErrShortWrite })
	assert.ErrorIs(t, err, io.ErrShortWrite)
}

func FuzzCopy(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a/b.py"}, tar.Header{Name: "lib64", Typeflag: tar.TypeSymlink, Linkname: "lib"}).Bytes())
	f.Add([]byte("not an archive"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = pylayer.Copy(bytes.NewReader(data), "", func(h *tar.Header, r io.Reader) error { // it must not panic
			if !filepath.IsLocal(h.Name) {
				t.Errorf("%q is not within its folder", h.Name)
			}
			_, err := io.Copy(io.Discard, r)
			return err
		})
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"numpy>=1,<2; python_version<'3.12'", "-r x", "a @ https://u:p@h/x.whl --hash=sha256:0", "-i https://u:p@h/", "--pre", "-"} {
		f.Add(s)
	}
	f.Setenv("PIP_CONFIG_FILE", os.DevNull)
	f.Fuzz(func(t *testing.T, s string) {
		l, err := pylayer.Parse([]string{s}, "")
		if bad, ok := errors.AsType[*fnloop.PackageError](err); err != nil && (!ok || bad.Field != "Packages") {
			t.Errorf("Parse(%q) error = %v", s, err)
		}
		if err == nil && strings.ContainsAny(l.String(), "\n\r") {
			t.Errorf("Parse(%q) has a line break", s)
		}
	})
}
