package fnloop

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// What the API takes of one part, in characters of a data URL.
const (
	maxImageURL = 20 << 20
	maxFileData = 70 << 20
)

// ImageData makes a part of a picture: PNG, JPEG, WebP or a GIF without animation.
// It finds out the kind from the data. Its error says what the API would not take,
// such as a picture of more than 15 MiB.
func ImageData(data []byte) (Content, error) {
	kind := sniff(data)
	if err := checkImage(data, kind); err != nil {
		return Content{}, err
	}
	return Content{ImageURL: dataURL(kind, data)}, nil
}

// ImageLink makes a part of a picture that the API fetches from an address. It
// does not fetch the picture itself. A data URL is taken too, and is checked as by
// [ImageData].
func ImageLink(address string) (Content, error) {
	if !strings.HasPrefix(address, "data:") {
		if err := checkLink(address); err != nil {
			return Content{}, err
		}
		return Content{ImageURL: address}, nil
	}
	_, encoded, ok := strings.Cut(address, ";base64,")
	if !ok {
		return Content{}, errors.New("fnloop: image: the data URL is not in base64")
	}
	if len(address) > maxImageURL {
		return Content{}, oversize("image", int64(len(encoded)/4*3), maxImageURL)
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Content{}, fmt.Errorf("fnloop: image: the data URL is not in base64: %w", err)
	}
	return ImageData(data)
}

// FileData makes a part of a file: a PDF, a text in UTF-8, or a document of
// Office. The model sees the name, whose directories are left out. Its error says
// what the API would not take, such as a file of more than 52 MiB. A picture is
// for [ImageData].
func FileData(name string, data []byte) (Content, error) {
	name = baseName(name)
	if name == "" || !utf8.ValidString(name) {
		return Content{}, fmt.Errorf("fnloop: file: %q is not a file name", name)
	}
	kind, err := fileKind(name, data)
	if err != nil {
		return Content{}, err
	}
	if encodedSize(kind, int64(len(data))) > maxFileData {
		return Content{}, oversize("file "+name, int64(len(data)), maxFileData)
	}
	return Content{FileData: dataURL(kind, data), FileName: name}, nil
}

// FileLink makes a part of a file that the API fetches from an address. It does
// not fetch the file itself.
func FileLink(address string) (Content, error) {
	if err := checkLink(address); err != nil {
		return Content{}, err
	}
	return Content{FileURL: address}, nil
}

// ReadContent makes a part of what r gives, such as an upload: an image if it is
// a picture, else a file with that name. It reads no more than the API would
// take.
func ReadContent(name string, r io.Reader) (Content, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileData/4*3+1))
	if err != nil {
		return Content{}, fmt.Errorf("fnloop: reading %s: %w", baseName(name), err)
	}
	if kind := sniff(data); strings.HasPrefix(kind, "image/") {
		return ImageData(data)
	}
	return FileData(name, data)
}

// OpenContent is [ReadContent] for a file on disk.
func OpenContent(path string) (Content, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Content{}, fmt.Errorf("fnloop: %w", err)
	case !info.Mode().IsRegular(): // to open a pipe could take for ever
		return Content{}, fmt.Errorf("fnloop: %w", &fs.PathError{Op: "open", Path: path, Err: errors.New("is not a regular file")})
	case info.Size() > maxFileData/4*3:
		return Content{}, oversize("file "+baseName(path), info.Size(), maxFileData)
	}
	f, err := os.Open(path)
	if err != nil {
		return Content{}, fmt.Errorf("fnloop: %w", err)
	}
	defer f.Close()
	return ReadContent(path, f)
}

// sniff is the MIME type of data without parameters. It knows pictures that phones
// and scanners make too, so that an error can name them.
func sniff(data []byte) string {
	kind, _, _ := mime.ParseMediaType(http.DetectContentType(data))
	if kind != "application/octet-stream" && kind != "video/mp4" {
		return kind
	}
	switch head := string(data[:min(len(data), 12)]); {
	case strings.HasPrefix(head, "II*\x00"), strings.HasPrefix(head, "MM\x00*"):
		return "image/tiff"
	case len(head) == 12 && head[4:8] == "ftyp":
		switch head[8:] {
		case "heic", "heix", "hevc", "hevx", "heim", "heis", "mif1", "msf1":
			return "image/heic"
		case "avif", "avis":
			return "image/avif"
		}
	}
	return kind
}

func checkImage(data []byte, kind string) error {
	switch {
	case len(data) == 0:
		return errors.New("fnloop: image: there is no data")
	case kind == "image/gif" && movingGIF(data):
		return errors.New("fnloop: image: the API does not take animated GIFs; send one frame as PNG")
	case kind != "image/png" && kind != "image/jpeg" && kind != "image/webp" && kind != "image/gif":
		return fmt.Errorf("fnloop: image: the data is %s, and the API takes PNG, JPEG, WebP and GIF", kind)
	case encodedSize(kind, int64(len(data))) > maxImageURL:
		return oversize("image", int64(len(data)), maxImageURL)
	}
	return nil
}

// officeKinds are the documents that are archives, by the ends of their names.
var officeKinds = map[string]string{
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

// fileKind is the MIME type of a file that the API takes.
func fileKind(name string, data []byte) (string, error) {
	kind := sniff(data)
	end := strings.ToLower(filepath.Ext(name))
	switch {
	case len(data) == 0:
		return "", fmt.Errorf("fnloop: file %s: is empty", name)
	case strings.HasPrefix(kind, "image/"):
		return "", fmt.Errorf("fnloop: file %s: is a picture (%s); use ImageData", name, kind)
	case kind == "application/pdf":
		return kind, nil
	case end == ".pdf":
		return "", fmt.Errorf("fnloop: file %s: is %s and no PDF", name, kind)
	case kind == "application/zip" && officeKinds[end] != "":
		return officeKinds[end], nil
	case strings.HasPrefix(kind, "text/"):
		if utf8.Valid(data) {
			return "text/plain", nil
		}
		return "", fmt.Errorf("fnloop: file %s: the text is not in UTF-8", name)
	}
	return "", fmt.Errorf("fnloop: file %s: the API takes no %s; it takes PDF, text, docx, xlsx and pptx", name, kind)
}

// movingGIF reports whether a GIF has a second picture.
func movingGIF(data []byte) bool {
	table := func(flags byte) int { // the size of a table of colours
		if flags&0x80 == 0 {
			return 0
		}
		return 3 << (flags&7 + 1)
	}
	if len(data) < 13 {
		return false
	}
	i := 13 + table(data[10])
	blocks := func() { // steps over them, to the one without length
		for i < len(data) && data[i] != 0 {
			i += int(data[i]) + 1
		}
		i++
	}
	for pictures := 0; i < len(data); {
		switch data[i] {
		case 0x21: // an extension
			i += 2
			blocks()
		case 0x2c: // a picture
			if pictures++; pictures > 1 {
				return true
			}
			if i+9 >= len(data) {
				return false
			}
			i += 10 + table(data[i+9]) + 1
			blocks()
		default:
			return false
		}
	}
	return false
}

func checkLink(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("fnloop: %.200q is no web address; begin it with https://", address)
	}
	return nil
}

func dataURL(kind string, data []byte) string {
	head := "data:" + kind + ";base64,"
	out := make([]byte, len(head), encodedSize(kind, int64(len(data))))
	copy(out, head)
	return string(base64.StdEncoding.AppendEncode(out, data))
}

// encodedSize is the length of a data URL of n bytes.
func encodedSize(kind string, n int64) int64 {
	return int64(len("data:")+len(kind)+len(";base64,")) + (n+2)/3*4
}

func oversize(what string, size, most int64) error {
	return fmt.Errorf("fnloop: %s: %d bytes are more than the about %d that the API takes", what, size, most/4*3)
}

// baseName is the last element of a path of this system or of Windows, as
// browsers send it.
func baseName(path string) string {
	path = path[strings.LastIndexAny(path, `/\`)+1:]
	if path == "." || path == ".." {
		return ""
	}
	return path
}
