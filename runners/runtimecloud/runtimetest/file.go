package runtimetest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fnloop/fnloop/interpreter"
)

// maxFile is the largest body of one write.
const maxFile = 1 << 20

type upload struct {
	path   string
	sum    string
	data   []byte
	chunks map[int64]bool // by offset
}

// filePath gives the path in the query, which must be absolute and clean.
func filePath(c *call) (string, *apiError) {
	p := c.URL.Query().Get("path")
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return "", refuse(http.StatusBadRequest, "invalid_request", "The path %q is not absolute.", p)
	}
	return p, nil
}

func (s *Server) writeFile(c *call) (*answer, *apiError) {
	name, refusal := filePath(c)
	if refusal != nil {
		return nil, refusal
	}
	if len(c.body) > maxFile {
		return nil, refuse(http.StatusRequestEntityTooLarge, "file_too_large", "%d bytes are more than %d.", len(c.body), maxFile)
	}
	if got := c.Header.Get("Content-Type"); got != "application/octet-stream" {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "A file is no %q.", got)
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if refusal := s.put(c, sb, name, c.body); refusal != nil {
		return nil, refusal
	}
	return ok(map[string]any{}), nil
}

// put keeps a file. The caller holds s.mu, which is given up in between.
func (s *Server) put(c *call, sb *sandbox, name string, data []byte) *apiError {
	below, inFolder := strings.CutPrefix(name, workspace+"/")
	if sb.folder == nil || !inFolder {
		sb.files[name] = data
		return nil
	}
	folder := sb.folder
	s.mu.Unlock()
	err := folder.Put(c.Context(), below, bytes.NewReader(data))
	s.mu.Lock()
	if err != nil {
		return refuse(http.StatusConflict, "is_a_directory", "%s: %v", name, err)
	}
	return nil
}

// get gives a file. The caller holds s.mu, which is given up in between.
func (s *Server) get(c *call, sb *sandbox, name string) ([]byte, *apiError) {
	below, inFolder := strings.CutPrefix(name, workspace+"/")
	if sb.folder == nil || !inFolder {
		if data, there := sb.files[name]; there {
			return data, nil
		}
		return nil, refuse(http.StatusNotFound, "file_not_found", "%s does not exist.", name)
	}
	folder := sb.folder
	s.mu.Unlock()
	defer s.mu.Lock()
	r, err := folder.Get(c.Context(), below)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(r)
		r.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(http.StatusNotFound, "file_not_found", "%s does not exist.", name)
	case err != nil:
		return nil, refuse(http.StatusConflict, "is_a_directory", "%s: %v", name, err)
	}
	return data, nil
}

// filesIn gives the files of a sandbox. The caller holds s.mu, which is given up in
// between.
func (s *Server) filesIn(c *call, sb *sandbox) (map[string]interpreter.File, *apiError) {
	all := make(map[string]interpreter.File)
	for name, data := range sb.files {
		if sb.folder == nil || !strings.HasPrefix(name, workspace+"/") {
			all[name] = interpreter.File{Name: name, Size: int64(len(data)), Modified: sb.created}
		}
	}
	if sb.folder == nil {
		return all, nil
	}
	folder := sb.folder
	s.mu.Unlock()
	defer s.mu.Lock()
	files, err := folder.List(c.Context())
	if err != nil {
		return nil, refuse(http.StatusBadGateway, "guest_failed", "%v", err)
	}
	for _, f := range files {
		f.Name = workspace + "/" + f.Name
		all[f.Name] = f
	}
	return all, nil
}

func entry(f interpreter.File) map[string]any {
	return map[string]any{
		"name": path.Base(f.Name), "path": f.Name, "type": "file", "size": f.Size, "mode": "644",
		"modifiedAt": f.Modified.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

func (s *Server) listFiles(c *call) (*answer, *apiError) {
	folder, refusal := filePath(c)
	if refusal != nil {
		return nil, refusal
	}
	query := c.URL.Query()
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(query.Get(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	depth, limit := number("depth", 1), number("limit", 1000) // what they are by themselves is not documented
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	files, refusal := s.filesIn(c, sb)
	if refusal != nil {
		return nil, refusal
	}
	data, folders := []map[string]any{}, make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		below, inside := strings.CutPrefix(name, strings.TrimSuffix(folder, "/")+"/")
		if !inside || query.Get("hidden") != "true" && strings.Contains("/"+below, "/.") {
			continue
		}
		parts := strings.Split(below, "/")
		for i := 1; i < len(parts) && i <= depth; i++ {
			above := strings.TrimSuffix(folder, "/") + "/" + strings.Join(parts[:i], "/")
			if !folders[above] && len(data) < limit {
				folders[above] = true
				e := entry(interpreter.File{Name: above, Modified: files[name].Modified})
				e["type"] = "directory"
				data = append(data, e)
			}
		}
		if len(parts) <= depth && len(data) < limit {
			data = append(data, entry(files[name]))
		}
	}
	return ok(map[string]any{"data": data}), nil
}

func (s *Server) stat(c *call) (*answer, *apiError) {
	name, refusal := filePath(c)
	if refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	files, refusal := s.filesIn(c, sb)
	if refusal != nil {
		return nil, refusal
	}
	f, there := files[name]
	if !there {
		return ok(map[string]any{"exists": false}), nil
	}
	e := entry(f)
	e["exists"] = true
	return ok(e), nil
}

func (s *Server) removeFile(c *call) (*answer, *apiError) {
	f := c.fields()
	name, recursive := f.text("path", ""), f.flag("recursive", false)
	if !path.IsAbs(name) || path.Clean(name) != name {
		f.wrong("path", "an absolute path")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	below, inFolder := strings.CutPrefix(name, workspace+"/")
	if sb.folder == nil || !inFolder {
		before := len(sb.files)
		maps.DeleteFunc(sb.files, func(n string, _ []byte) bool {
			return n == name || recursive && strings.HasPrefix(n, name+"/")
		})
		return ok(map[string]any{"removed": len(sb.files) < before}), nil
	}
	folder := sb.folder
	s.mu.Unlock()
	err := folder.Remove(c.Context(), below)
	s.mu.Lock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(http.StatusBadGateway, "guest_failed", "%v", err)
	}
	return ok(map[string]any{"removed": err == nil}), nil
}

func (s *Server) readFile(c *call) (*answer, *apiError) {
	name, refusal := filePath(c)
	if refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	data, refusal := s.get(c, sb, name)
	if refusal != nil {
		return nil, refusal
	}
	return fileAnswer(data), nil
}

func (s *Server) upload(c *call) (*answer, *apiError) {
	f := c.fields()
	name := f.text("path", "")
	size := f.integer("size", 0, 1, 1<<32, false)
	sum := f.text("sha256", "")
	f.text("mode", "644")
	if !strings.HasPrefix(name, "/workspace/") || path.Clean(name) != name {
		f.wrong("path", "under /workspace")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if len(sb.uploads) >= 4 {
		return nil, refuse(http.StatusConflict, "transfer_limit", "4 uploads are under way.")
	}
	s.seq++
	id := fmt.Sprintf("up-%d", s.seq)
	sb.uploads[id] = &upload{path: name, sum: sum, data: make([]byte, size), chunks: make(map[int64]bool)}
	return ok(map[string]any{"uploadId": id, "chunkBytes": cmp.Or(s.ChunkBytes, maxFile)}), nil
}

// transfer gives the upload that the path names. It returns with s.mu held.
func (s *Server) transfer(c *call) (*sandbox, *upload, *apiError) {
	sb, refusal := s.use(c)
	if refusal != nil {
		return nil, nil, refusal
	}
	u := sb.uploads[c.path[3]]
	if u == nil {
		return nil, nil, refuse(http.StatusConflict, "transfer_not_found", "No upload %s.", c.path[3])
	}
	return sb, u, nil
}

func (s *Server) chunk(c *call) (*answer, *apiError) {
	_, u, refusal := s.transfer(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	size := int64(cmp.Or(s.ChunkBytes, maxFile))
	at, err := strconv.ParseInt(c.URL.Query().Get("offset"), 10, 64)
	if err != nil || at < 0 || at%size != 0 || at >= int64(len(u.data)) || int64(len(c.body)) != min(size, int64(len(u.data))-at) {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "That is no chunk of the file.")
	}
	copy(u.data[at:], c.body)
	u.chunks[at] = true
	return ok(map[string]any{}), nil
}

func (s *Server) commit(c *call) (*answer, *apiError) {
	f := c.fields()
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, u, refusal := s.transfer(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	size := cmp.Or(s.ChunkBytes, maxFile)
	sum := sha256.Sum256(u.data)
	if len(u.chunks) != (len(u.data)+size-1)/size || hex.EncodeToString(sum[:]) != u.sum {
		return nil, refuse(http.StatusConflict, "upload_incomplete", "Chunks are missing.")
	}
	if refusal := s.put(c, sb, u.path, u.data); refusal != nil {
		return nil, refusal
	}
	delete(sb.uploads, c.path[3])
	return ok(map[string]any{}), nil
}

func (s *Server) abort(c *call) (*answer, *apiError) {
	sb, _, refusal := s.transfer(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	delete(sb.uploads, c.path[3])
	return ok(map[string]any{}), nil
}
