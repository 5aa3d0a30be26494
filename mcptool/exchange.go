package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	methodDiscover = "server/discover"
	methodList     = "tools/list"
	methodCall     = "tools/call"
)

// An exchange is one request and what came of it on the wire. It goes in the
// request's context, and the connection fills it in: go-sdk gives neither the bytes
// of a result nor word of whether a request was sent.
type exchange struct {
	method  string
	written atomic.Bool     // a byte of the request may have been sent
	status  atomic.Int32    // of the response, over HTTP
	result  json.RawMessage // as it came; to be read once go-sdk has returned without an error
	forget  func()          // lets the connection forget it; may be nil
}

// end is called when nobody waits for the response any more.
func (x *exchange) end() {
	if x.forget != nil {
		x.forget()
	}
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// take keeps the result of a response and leaves go-sdk one that it can decode:
// it would lose all of a result for one part that it does not know.
func (x *exchange) take(r *jsonrpc.Response) {
	if r.Error != nil {
		return
	}
	x.result = r.Result
	switch x.method {
	case methodCall:
		r.Result = json.RawMessage(`{"content":[]}`)
	case methodList:
		r.Result = decodable(r.Result)
	}
}

// decodable is what go-sdk needs of a list of tools: their names, and the whole of
// those whose arguments go into headers. It gets no tool that it cannot decode, and
// not the time for which it would keep the list.
func decodable(list json.RawMessage) json.RawMessage {
	var all struct {
		Tools      json.RawMessage `json:"tools"`
		NextCursor string          `json:"nextCursor,omitempty"`
	}
	if err := json.Unmarshal(list, &all); err != nil {
		return list // go-sdk says what is wrong
	}
	tools, _, err := elements(all.Tools, maxPage)
	if err != nil {
		return list
	}
	known := make([]json.RawMessage, 0, len(tools))
	for _, raw := range tools {
		var t struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"inputSchema"`
		}
		switch {
		case bytes.Contains(raw, []byte("x-mcp-header")):
			if json.Unmarshal(raw, new(mcp.Tool)) == nil {
				known = append(known, raw)
			}
		case json.Unmarshal(raw, &t) == nil && t.Name != "":
			t.Schema = json.RawMessage("{}")
			known = append(known, encode(t))
		}
	}
	all.Tools = encode(known)
	return encode(all)
}

// elements are the first elements of an array that is valid JSON, and whether there are
// more: one of small elements takes far more memory than its text. It is an error if
// there is another value.
func elements(array json.RawMessage, most int) (found []json.RawMessage, more bool, err error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, false, nil
	}
	if array[0] != '[' {
		return nil, false, errors.New("there should be a list")
	}
	depth, begin := 0, 1
	for i := 0; i < len(array); i++ {
		switch array[i] {
		case '"':
			i += endOfString(array[i:])
			continue
		case '[', '{':
			depth++
			continue
		case ']', '}':
			depth--
		}
		if end := depth == 0; end || depth == 1 && array[i] == ',' {
			element := bytes.TrimSpace(array[begin:i])
			switch {
			case end && len(found) == 0 && len(element) == 0:
				return nil, false, nil
			case len(found) == most:
				return found, true, nil
			}
			found = append(found, element)
			if end {
				return found, false, nil
			}
			begin = i + 1
		}
	}
	return nil, false, errors.New("the list has no end")
}

// endOfString is where a JSON string ends with which s begins.
func endOfString(s []byte) int {
	for i := 1; i < len(s); i++ {
		n := bytes.IndexByte(s[i:], '"')
		if n < 0 {
			break
		}
		escapes := n - len(bytes.TrimRight(s[i:i+n], `\`))
		if i += n; escapes%2 == 0 {
			return i
		}
	}
	return len(s)
}
