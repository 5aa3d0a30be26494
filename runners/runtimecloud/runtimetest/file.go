package runtimetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
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
	sb.files[name] = c.body
	return ok(map[string]any{}), nil
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
	data, there := sb.files[name]
	if !there {
		return nil, refuse(http.StatusNotFound, "file_not_found", "%s does not exist.", name)
	}
	sum := sha256.Sum256(data)
	a := ok(data)
	a.header = http.Header{
		"X-Content-Length": {strconv.Itoa(len(data))},
		"X-Content-Sha256": {hex.EncodeToString(sum[:])},
	}
	return a, nil
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
	return ok(map[string]any{"uploadId": id, "chunkBytes": or(s.ChunkBytes, maxFile)}), nil
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
	size := int64(or(s.ChunkBytes, maxFile))
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
	size := or(s.ChunkBytes, maxFile)
	sum := sha256.Sum256(u.data)
	if len(u.chunks) != (len(u.data)+size-1)/size || hex.EncodeToString(sum[:]) != u.sum {
		return nil, refuse(http.StatusConflict, "upload_incomplete", "Chunks are missing.")
	}
	sb.files[u.path] = u.data
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
