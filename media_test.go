package fnloop_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// pictures are one of each kind that the API takes.
func pictures(t *testing.T) map[string][]byte {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, 3, 2), color.Palette{color.Black, color.White})
	encode := func(f func(io.Writer) error) []byte {
		var b bytes.Buffer
		require.NoError(t, f(&b))
		return b.Bytes()
	}
	return map[string][]byte{
		"image/png":  encode(func(w io.Writer) error { return png.Encode(w, img) }),
		"image/jpeg": encode(func(w io.Writer) error { return jpeg.Encode(w, img, nil) }),
		"image/gif":  encode(func(w io.Writer) error { return gif.Encode(w, img, nil) }),
		"image/webp": []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"),
	}
}

func moving(t *testing.T) []byte {
	t.Helper()
	frame := image.NewPaletted(image.Rect(0, 0, 40, 40), color.Palette{color.Black, color.White, color.Gray{1}, color.Gray{2}})
	var b bytes.Buffer
	require.NoError(t, gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame, frame}, Delay: []int{1, 1}}))
	return b.Bytes()
}

func TestImageData(t *testing.T) {
	t.Parallel()
	for kind, data := range pictures(t) {
		c, err := fnloop.ImageData(data)
		require.NoError(t, err, kind)
		require.Equal(t, fnloop.Content{ImageURL: "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)}, c)
		again, err := fnloop.ImageLink(c.ImageURL)
		require.NoError(t, err)
		require.Equal(t, c, again)
	}
	png := pictures(t)["image/png"]
	limit := (20<<20 - len("data:image/png;base64,")) / 4 * 3
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "there is no data"},
		{"page", []byte("<!DOCTYPE html><html>not found</html>"), "text/html"},
		{"text", []byte("hello"), "text/plain"},
		{"bmp", []byte("BM123456789"), "image/bmp"},
		{"a phone's", []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"), "image/heic"},
		{"avif", []byte("\x00\x00\x00\x18ftypavif\x00\x00\x00\x00mif1avif"), "image/avif"},
		{"a scanner's", []byte("II*\x00\x08\x00\x00\x00"), "image/tiff"},
		{"a scanner's, the other way round", []byte("MM\x00*\x00\x00\x00\x08"), "image/tiff"},
		{"a text that looks like a phone's", []byte("abc ftypheic"), "text/plain"},
		{"the beginning of one", []byte("\x00\x00\x00\x18ftyp"), "application/octet-stream"},
		{"svg", []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`), "PNG, JPEG, WebP and GIF"},
		{"pdf", []byte("%PDF-1.7"), "application/pdf"},
		{"video", []byte("\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"), "video/mp4"},
		{"moving", moving(t), "animated GIFs"},
		{"cut moving", moving(t)[:20], ""},
		{"just fits", append(bytes.Clone(png), make([]byte, limit-len(png))...), ""},
		{"too large", append(bytes.Clone(png), make([]byte, limit-len(png)+3)...), "more than the about 15728640"},
		{"100 MB", append(bytes.Clone(png), make([]byte, 100_000_000)...), "bytes are more"},
	} {
		_, err := fnloop.ImageData(c.data)
		if c.want == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.want, c.name)
		require.True(t, strings.HasPrefix(err.Error(), "fnloop: image: "), err)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	c, err := fnloop.ImageLink("https://example.com/a.png?x=1")
	require.NoError(t, err)
	require.Equal(t, fnloop.Content{ImageURL: "https://example.com/a.png?x=1"}, c)
	c, err = fnloop.FileLink("http://example.com/a.pdf")
	require.NoError(t, err)
	require.Equal(t, fnloop.Content{FileURL: "http://example.com/a.pdf"}, c)
	for _, bad := range []string{"", "a.png", "/etc/passwd", "file:///etc/passwd", "ftp://example.com/a", "https://", "https://exa mple.com/", "javascript:alert(1)"} {
		_, err := fnloop.ImageLink(bad)
		require.ErrorContains(t, err, "no web address", bad)
		_, err = fnloop.FileLink(bad)
		require.ErrorContains(t, err, "no web address", bad)
	}
	for _, bad := range []string{"data:image/png,abc", "data:image/png;base64,???", "data:image/png;base64,aGVsbG8=", "data:image/png;base64," + strings.Repeat("A", 21<<20)} {
		_, err := fnloop.ImageLink(bad)
		require.ErrorContains(t, err, "fnloop: image: ", "%.40s", bad)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestFileData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, data, want string // a MIME type, or of an error behind !
	}{
		{"a.pdf", "%PDF-1.7\n...", "application/pdf"},
		{"no ending", "%PDF-1.7\n...", "application/pdf"},
		{`C:\Users\x\a.pdf`, "%PDF-1.7\n...", "application/pdf"},
		{"../../etc/a.csv", "a,b\n1,2\n", "text/plain"},
		{"größe.md", "# Größe\n", "text/plain"},
		{"a.html", "<html></html>", "text/plain"},
		{"a.docx", "PK\x03\x04....", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
		{"a.XLSX", "PK\x03\x04....", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
		{"", "x", "!is not a file name"}, {"a/", "x", "!is not a file name"}, {"..", "x", "!is not a file name"}, {"a\xff", "x", "!is not a file name"},
		{"a.txt", "", "!is empty"},
		{"a.pdf", "<html>please log in</html>", "!text/html and no PDF"},
		{"a.zip", "PK\x03\x04....", "!takes no application/zip"},
		{"a.mp3", "ID3\x03\x00\x00", "!takes no audio/mpeg"},
		{"a.exe", "MZ\x90\x00\x03", "!takes no application/octet-stream"},
		{"a.txt", "caf\xe9", "!not in UTF-8"},
		{"a.png", "\x89PNG\x0d\x0a\x1a\x0a", "!use ImageData"},
		{"a.pdf", "%PDF-1.7" + strings.Repeat("x", 60<<20), "!bytes are more"},
	} {
		got, err := fnloop.FileData(c.name, []byte(c.data))
		if bad, ok := strings.CutPrefix(c.want, "!"); ok {
			require.ErrorContains(t, err, bad, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, "data:"+c.want+";base64,"+base64.StdEncoding.EncodeToString([]byte(c.data)), got.FileData)
		require.NotContains(t, got.FileName, "/")
		require.NotContains(t, got.FileName, `\`)
	}
}

// longUpload is an upload that never ends.
type longUpload struct{ read int }

func (e *longUpload) Read(p []byte) (int, error) {
	copy(p, "%PDF-1.7")
	e.read += len(p)
	return len(p), nil
}

func TestReadContent(t *testing.T) {
	t.Parallel()
	png := pictures(t)["image/png"]
	c, err := fnloop.ReadContent("chart.bin", bytes.NewReader(png))
	require.NoError(t, err)
	require.NotEmpty(t, c.ImageURL, "what it is says the data")
	e := &longUpload{}
	_, err = fnloop.ReadContent("a.pdf", e)
	require.ErrorContains(t, err, "bytes are more")
	require.Less(t, e.read, 70<<20)
	broken := errors.New("the line broke")
	_, err = fnloop.ReadContent("a.pdf", io.MultiReader(strings.NewReader("%PDF"), readerFunc(func([]byte) (int, error) { return 0, broken })))
	require.ErrorIs(t, err, broken)

	dir := t.TempDir()
	path := filepath.Join(dir, "chart.png")
	require.NoError(t, os.WriteFile(path, png, 0o600))
	c, err = fnloop.OpenContent(path)
	require.NoError(t, err)
	require.NotEmpty(t, c.ImageURL)
	require.NoError(t, os.Truncate(path, 1<<30)) // a hole, which takes no room
	_, err = fnloop.OpenContent(path)
	require.ErrorContains(t, err, "bytes are more")
	_, err = fnloop.OpenContent(dir)
	require.ErrorContains(t, err, "not a regular file")
	_, err = fnloop.OpenContent(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestContentIsTakenByTheAPI sends one of each.
func TestContentIsTakenByTheAPI(t *testing.T) {
	t.Parallel()
	var parts []fnloop.Content
	for _, data := range pictures(t) {
		c, err := fnloop.ImageData(data)
		require.NoError(t, err)
		c.Detail = "low"
		parts = append(parts, c)
	}
	for name, data := range map[string]string{"a.pdf": "%PDF-1.7", "a.txt": "text"} {
		c, err := fnloop.FileData(name, []byte(data))
		require.NoError(t, err)
		parts = append(parts, c)
	}
	loop, srv := play(t, rt.Text("seen"))
	a, err := loop.Run(context.Background(), "", parts...)
	require.NoError(t, err)
	require.Equal(t, "seen", a.Text)
	body := string(srv.Requests()[0].Body)
	require.Equal(t, 4, strings.Count(body, `"input_image"`))
	require.Equal(t, 2, strings.Count(body, `"input_file"`))
}

func FuzzImageData(f *testing.F) {
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b"))
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00\x21\xf9\x04"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := fnloop.ImageData(data); err == nil {
			require.True(t, strings.HasPrefix(c.ImageURL, "data:image/"))
		}
		_, _ = fnloop.FileData("a", data)
	})
}
