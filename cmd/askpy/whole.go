package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
)

// A whole is a transport for streams that puts up with a server that cannot
// stream: a response that came in one piece becomes the event that ends it.
type whole struct{ http.RoundTripper }

// maxWhole bounds what is read of such a response, in bytes; more of it is
// passed on as it is.
const maxWhole = 64 << 20

func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.RoundTripper.RoundTrip(req)
	if err != nil || res.StatusCode >= http.StatusMultipleChoices || isStream(res.Header) {
		return res, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxWhole))
	if err != nil {
		res.Body.Close()
		return nil, err
	}
	event, ok := ending(body)
	if !ok {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
		return res, nil
	}
	res.Body.Close()
	res.Header = res.Header.Clone()
	res.Header.Set("Content-Type", "text/event-stream")
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(event)), int64(len(event))
	return res, nil
}

// ending is the event, as it stands in a stream, that has the response in body.
func ending(body []byte) (event []byte, ok bool) {
	var response struct{ Status string }
	if json.Unmarshal(body, &response) != nil || !slices.Contains([]string{"completed", "incomplete", "failed"}, response.Status) {
		return nil, false
	}
	var b bytes.Buffer
	b.WriteString(`data: {"type":"response.` + response.Status + `","response":`)
	if json.Compact(&b, body) != nil { // without line breaks, which would end the line
		return nil, false
	}
	b.WriteString("}\n\n")
	return b.Bytes(), true
}
