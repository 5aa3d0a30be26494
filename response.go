package fnloop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/responses"
)

// A response is what a Loop reads of one. Decoding no more than this is
// most of what a Loop saves over a client that decodes all of it.
type response struct {
	ID                string `json:"id"`
	Status            string `json:"status"`
	IncompleteDetails struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Model       string         `json:"model"`
	ServiceTier string         `json:"service_tier"`
	Error       *fault         `json:"error"`
	Usage       *responseUsage `json:"usage"`
	Output      []item         `json:"output"`

	body    []byte            // of the response, nil if there is none
	raw     []json.RawMessage // the output, if it is not that of body
	emitted emitted           // of it to the reader, before it was whole

	first     time.Duration // from the sending of the request to the first event
	requestID string        // the API's, of the HTTP request
}

type responseUsage struct {
	InputTokens        int64 `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int64 `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int64 `json:"total_tokens"`
}

// An item is one element of a response's output. What differs in type from item
// to item stays raw until its type is known.
type item struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	CallID       string          `json:"call_id"`
	Name         string          `json:"name"`
	Namespace    string          `json:"namespace"`
	Arguments    json.RawMessage `json:"arguments"`
	Input        json.RawMessage `json:"input"`
	Status       string          `json:"status"`
	Phase        string          `json:"phase"`
	Execution    string          `json:"execution"`
	Content      json.RawMessage `json:"content"`
	Summary      json.RawMessage `json:"summary"`
	Tools        json.RawMessage `json:"tools"`
	ServerLabel  string          `json:"server_label"`
	Result       json.RawMessage `json:"result"`
	OutputFormat string          `json:"output_format"`
	Outputs      json.RawMessage `json:"outputs"`
	ContainerID  string          `json:"container_id"`
	Caller       json.RawMessage `json:"caller"`
	Environment  json.RawMessage `json:"environment"`

	content []part // once parts has read it
}

// callerID is the call_id of the program that made a call, or empty when the
// model made it itself.
type callerID string

func decodeResponse(body []byte) (*response, error) {
	r := new(response)
	err := unmarshal(body, r)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && odd.Field != "" {
		// A field of another type counts as missing, as for openai-go, unless it
		// hides what the response asks for.
		err = json.Unmarshal(body, &struct{ Output []struct{ Type string } }{})
	}
	if err != nil {
		return nil, &ProtocolError{ID: r.ID, Reason: "not a response: " + notJSON(body, err)}
	}
	r.inferStatus()
	r.body = body
	return r, nil
}

// inferStatus makes a failed response of an error in the place of one.
func (r *response) inferStatus() {
	if r.Status == "" && r.Error != nil {
		r.Status = "failed"
	}
}

// setOutput gives r the output items that came one by one.
func (r *response) setOutput(items []json.RawMessage) error {
	list, err := json.Marshal(items)
	if err != nil {
		return &ProtocolError{ID: r.ID, Reason: err.Error()}
	}
	err = unmarshal(list, &r.Output)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
		return &ProtocolError{ID: r.ID, Reason: err.Error()}
	}
	r.raw = items
	return nil
}

// decodeItems reads items that are kept. One of another form than its type's
// counts as one without members.
func decodeItems(raw []json.RawMessage) []item {
	items := make([]item, len(raw))
	for i := range raw {
		unmarshal(raw[i], &items[i])
	}
	return items
}

// items are the output items to the byte.
func (r *response) items() []json.RawMessage {
	if r.raw != nil || r.body == nil {
		return r.raw
	}
	var doc struct {
		Output []json.RawMessage `json:"output"`
	}
	unmarshal(r.body, &doc) // it was decoded before
	return doc.Output
}

// notJSON says what came instead of a response.
func notJSON(body []byte, err error) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return "an empty body"
	}
	return fmt.Sprintf("%v; the body begins with %q", err, snippet(body))
}

func snippet(body []byte) []byte {
	const most = 120
	body = bytes.TrimSpace(body)
	return body[:min(len(body), most)]
}

// convertResponse takes what a Loop reads out of a response that openai-go decoded,
// or that a stand-in made field by field.
func convertResponse(res *responses.Response) (*response, error) {
	if raw := res.RawJSON(); raw != "" {
		return decodeResponse([]byte(raw))
	}
	r := &response{ID: res.ID, Status: string(res.Status), Model: res.Model, ServiceTier: string(res.ServiceTier)}
	r.IncompleteDetails.Reason = res.IncompleteDetails.Reason
	if e := res.Error; e.Code != "" || e.Message != "" {
		r.Error = &fault{code: string(e.Code), kind: e.Type, param: e.Param, message: e.Message, wait: waitInText(e.Message)}
	}
	if u := res.Usage; u.TotalTokens != 0 || u.InputTokens != 0 || u.OutputTokens != 0 {
		r.Usage = &responseUsage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.TotalTokens}
		r.Usage.InputTokensDetails.CachedTokens = u.InputTokensDetails.CachedTokens
		r.Usage.InputTokensDetails.CacheWriteTokens = u.InputTokensDetails.CacheWriteTokens
		r.Usage.OutputTokensDetails.ReasoningTokens = u.OutputTokensDetails.ReasoningTokens
	}
	for _, o := range res.Output {
		it := item{
			Type: o.Type, ID: o.ID, CallID: o.CallID, Name: o.Name, Namespace: o.Namespace, Status: o.Status,
			Phase: string(o.Phase), Execution: o.Execution,
		}
		if o.Input != "" {
			it.Input, _ = json.Marshal(o.Input)
		}
		if o.Arguments.OfString != "" {
			it.Arguments, _ = json.Marshal(o.Arguments.OfString)
		}
		if o.Caller.Type != "" {
			it.Caller, _ = json.Marshal(map[string]string{"type": o.Caller.Type, "caller_id": o.Caller.CallerID})
		}
		if len(o.Content) > 0 {
			var parts []part
			for _, c := range o.Content {
				parts = append(parts, part{Type: c.Type, Text: c.Text, Refusal: c.Refusal})
			}
			it.Content, _ = json.Marshal(parts)
		}
		r.Output = append(r.Output, it)
		raw, err := rawItem(&o, &it)
		if err != nil {
			return nil, &ProtocolError{ID: r.ID, Reason: fmt.Sprintf("item of type %q: %v", o.Type, err)}
		}
		r.raw = append(r.raw, raw)
	}
	return r, nil
}

// rawItem is the JSON of an item that was made field by field, in the form in
// which the API takes it back. The fields that an item of its type must have are
// there, empty or not; of all others those that are set.
func rawItem(o *responses.ResponseOutputItemUnion, it *item) (json.RawMessage, error) {
	required := map[string]any{}
	switch o.Type {
	case "message":
		content := []map[string]any{}
		for _, c := range o.Content {
			if c.Type == "refusal" {
				content = append(content, map[string]any{"type": c.Type, "refusal": c.Refusal})
			} else {
				content = append(content, map[string]any{"type": c.Type, "text": c.Text, "annotations": []any{}})
			}
		}
		required["role"], required["content"] = cmp.Or(o.Role, "assistant"), content
	case "function_call":
		required["call_id"], required["name"], required["arguments"] = o.CallID, o.Name, it.arguments()
	case "custom_tool_call":
		required["call_id"], required["name"], required["input"] = o.CallID, o.Name, it.arguments()
	case "reasoning":
		summary := []map[string]any{}
		for _, p := range o.Summary {
			summary = append(summary, map[string]any{"type": "summary_text", "text": p.Text})
		}
		required["summary"] = summary
	}
	all, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(all, &fields); err != nil {
		return nil, err
	}
	if output, ok := fields["output"].(map[string]any); ok {
		delete(output, "type") // openai-go sets it whatever the output is
	}
	item, _ := onlySet(fields).(map[string]any)
	if item == nil {
		item = map[string]any{}
	}
	if o.Type == "reasoning" || o.Type == "message" {
		delete(item, "content")
	}
	maps.Copy(item, required)
	return json.Marshal(item)
}

// onlySet leaves out what is zero, and takes the alternative that is set of each
// of openai-go's unions. It is nil if nothing is set.
func onlySet(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for key, value := range v {
			if value = onlySet(value); value == nil {
				continue
			}
			if strings.HasPrefix(key, "Of") {
				return value
			}
			out[key] = value
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = onlySet(value)
		}
		return out
	case string:
		if v == "" {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

// usage is what the response used, and whether it said so.
func (r *response) usage() (u Usage, ok bool) {
	if r.Usage == nil {
		return u, false
	}
	u = Usage{
		InputTokens:      r.Usage.InputTokens,
		CachedTokens:     r.Usage.InputTokensDetails.CachedTokens,
		CacheWriteTokens: r.Usage.InputTokensDetails.CacheWriteTokens,
		OutputTokens:     r.Usage.OutputTokens,
		ReasoningTokens:  r.Usage.OutputTokensDetails.ReasoningTokens,
		TotalTokens:      r.Usage.TotalTokens,
	}
	if u.TotalTokens == 0 {
		u.TotalTokens = u.InputTokens + u.OutputTokens
	}
	return u, true
}

// check returns nil for a response that the conversation can go on from.
func (r *response) check() error {
	switch r.Status {
	case "completed":
	case "incomplete":
		switch reason := r.IncompleteDetails.Reason; reason {
		case "max_output_tokens":
			return fmt.Errorf("%w: %s", ErrTruncated, reason)
		case "content_filter":
			return fmt.Errorf("%w: %s", ErrFiltered, reason)
		default:
			return fmt.Errorf("%w: reason %q", ErrIncomplete, reason)
		}
	case "failed", "cancelled":
		e := &ResponseError{ID: r.ID, Status: r.Status}
		if r.Error != nil {
			e.Code, e.Type, e.Message, e.Param = r.Error.code, r.Error.kind, r.Error.message, r.Error.param
		}
		return e
	case "":
		return &ProtocolError{ID: r.ID, Reason: "it has no status"}
	default:
		return &ProtocolError{ID: r.ID, Reason: fmt.Sprintf("its status %q is not final; background responses are not supported", r.Status)}
	}
	if r.ID == "" {
		return &ProtocolError{Reason: "it has no id to continue from"}
	}
	seen := make(map[string]bool)
	for i := range r.Output {
		it := &r.Output[i]
		if it.needsClient() {
			return &UnsupportedItemError{Type: it.Type, ID: it.ID}
		}
	}
	for _, it := range r.calls() {
		switch {
		case it.CallID == "":
			return &ProtocolError{ID: r.ID, Reason: fmt.Sprintf("the call of %q has no call_id", it.Name)}
		case seen[it.CallID]:
			return &ProtocolError{ID: r.ID, Reason: fmt.Sprintf("two calls have the call_id %q", it.CallID)}
		case !it.finished():
			return fmt.Errorf("%w: the call of %q is %s", ErrTruncated, it.Name, it.Status)
		}
		seen[it.CallID] = true
	}
	return nil
}

// needsClient reports whether the conversation cannot go on until the client
// answers the item in a way that a Loop cannot. Types that are not known here
// are taken for the server's own.
func (it *item) needsClient() bool {
	switch it.Type {
	case "local_shell_call", "apply_patch_call", "computer_call":
		return true
	case "tool_search_call":
		return it.Execution == "client"
	case "shell_call": // a hosted container has run it already
		var env struct{ Type string }
		return json.Unmarshal(it.Environment, &env) == nil && env.Type == "local"
	}
	return false
}

// isCall reports whether the item is a call of a tool that a Loop can have.
func (it *item) isCall() bool {
	return it.Type == "function_call" || it.Type == "custom_tool_call"
}

// finished reports whether the model has written the whole call. Calls of a
// program are in progress until they are answered.
func (it *item) finished() bool {
	return it.Status == "" || it.Status == "completed" || it.Status == "in_progress" && it.program() != ""
}

// asksApproval reports whether the item is a call of a tool of an MCP server, which
// the API makes itself once it was approved.
func (it *item) asksApproval() bool { return it.Type == "mcp_approval_request" }

// calls are the calls of the response that wait for an output or an approval.
func (r *response) calls() []*item {
	var calls []*item
	for i := range r.Output {
		it := &r.Output[i]
		if calls == nil && (it.asksApproval() || it.isCall()) {
			calls = make([]*item, 0, len(r.Output)-i)
		}
		if it.asksApproval() { // it is answered by its own ID
			asks := *it
			asks.CallID, asks.Namespace = it.ID, it.ServerLabel
			calls = append(calls, &asks)
		} else if it.isCall() {
			calls = append(calls, it)
		}
	}
	return calls
}

// runsProgram reports whether the response is no answer because a program that
// OpenAI runs has paused or has just ended: an empty request lets the model go
// on.
func (r *response) runsProgram() bool {
	programs := 0
	for i := range r.Output {
		switch it := &r.Output[i]; it.Type {
		case "program", "program_output":
			programs++
		case "message":
			if it.Phase != "commentary" {
				return false
			}
		}
	}
	return programs > 0
}

func (it *item) announced() CallAnnounced {
	return CallAnnounced{ID: it.CallID, Name: it.Name, Namespace: it.Namespace, Custom: it.Type == "custom_tool_call"}
}

// deltas are the events of a piece of the call's arguments.
func (it *item) deltas(args *argumentReader, piece string) []CallDelta {
	if it.Type == "custom_tool_call" {
		return []CallDelta{{ID: it.CallID, Text: piece, Value: piece}}
	}
	return args.read(it.CallID, piece)
}

// arguments is the text that the model wrote for the call.
func (it *item) arguments() string {
	raw := it.Arguments
	if it.Type == "custom_tool_call" {
		raw = it.Input
	}
	var s string
	if unmarshal(raw, &s) != nil {
		return string(raw) // a compatible server sent the object itself
	}
	return s
}

func (it *item) program() callerID {
	if len(it.Caller) == 0 {
		return ""
	}
	var c struct {
		Type     string
		CallerID string `json:"caller_id"`
	}
	if unmarshal(it.Caller, &c) == nil && c.Type == "program" {
		return callerID(c.CallerID)
	}
	return ""
}

// A part is a piece of a message.
type part struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Refusal     string          `json:"refusal"`
	Annotations json.RawMessage `json:"annotations"`
}

// parts are those of a message's content.
func (it *item) parts() []part {
	if it.content == nil && len(it.Content) > 0 {
		it.content = partsOf(it.Content)
	}
	return it.content
}

func partsOf(list json.RawMessage) []part {
	var parts []part
	if unmarshal(list, &parts) != nil {
		return nil
	}
	return parts
}

// answer is the text of the response's final messages, or the model's words
// when it refused. Messages that only comment on the work are left out. The last
// is the text of the last message alone, of those that are called final if any
// are.
func (r *response) answer() (text, last string, refused bool) {
	var texts, refusals []string
	final := false
	for i := range r.Output {
		it := &r.Output[i]
		if it.Type != "message" || it.Phase == "commentary" {
			continue
		}
		var text strings.Builder
		for _, p := range it.parts() {
			switch p.Type {
			case "output_text":
				text.WriteString(p.Text)
			case "refusal":
				refusals = append(refusals, p.Refusal)
			}
		}
		if text.Len() == 0 {
			continue
		}
		texts = append(texts, text.String())
		if it.Phase != "" || !final {
			last = text.String()
		}
		final = final || it.Phase != ""
	}
	if len(refusals) > 0 {
		return strings.Join(append(texts, refusals...), "\n"), "", true
	}
	return strings.Join(texts, "\n"), last, false
}

// citations are those of the final messages, with places in the text of answer.
func (r *response) citations() []Citation {
	var out []Citation
	before := 0
	for i := range r.Output {
		it := &r.Output[i]
		if it.Type != "message" || it.Phase == "commentary" {
			continue
		}
		size := 0
		for _, p := range it.parts() {
			if p.Type == "output_text" {
				size += len(p.Text)
			}
		}
		if size == 0 {
			continue
		}
		for _, c := range it.citations() {
			c.Start, c.End = c.Start+before, c.End+before
			out = append(out, c)
		}
		before += size + len("\n")
	}
	return out
}

// text is all that the response says, comments too.
func (r *response) text() string {
	var texts []string
	for i := range r.Output {
		if it := &r.Output[i]; it.Type == "message" {
			for _, p := range it.parts() {
				if p.Text != "" {
					texts = append(texts, p.Text)
				}
			}
		}
	}
	return strings.Join(texts, "\n")
}

// emitEvents emits what of a response the reader has not been told while it came.
func (r *response) emitEvents(emit func(Event)) {
	reasoned := r.emitted.reasoning != nil
	var raw []json.RawMessage
	for i := range r.Output {
		switch it := &r.Output[i]; {
		case it.isCall():
			if !r.emitted.calls[it.CallID] {
				emit(it.announced())
			}
			if args := it.arguments(); args != "" && !r.emitted.arguments[it.CallID] {
				for _, d := range it.deltas(new(argumentReader), args) {
					emit(d)
				}
			}
		case it.Type == "message":
			for _, p := range it.parts() {
				if s := p.Text + p.Refusal; s != "" && !r.emitted.text {
					emit(TextDelta{Text: s, Phase: it.Phase, Item: i, Refusal: p.Text == ""})
				}
			}
		case it.Type == "reasoning" && !reasoned:
			for n, p := range partsOf(it.Summary) {
				emit(r.emitted.reasoningDelta(ReasoningDelta{Text: p.Text, Item: i, Part: n}))
			}
			for n, p := range it.parts() {
				emit(r.emitted.reasoningDelta(ReasoningDelta{Text: p.Text, Item: i, Part: n, Raw: true}))
			}
		case it.isHosted() && raw == nil:
			raw = r.items()
		}
		var own json.RawMessage
		if i < len(raw) {
			own = raw[i]
		}
		r.emitted.item(emit, i, &r.Output[i], own)
	}
}

// A ResponseError is a failure that came as a response with HTTP status 200:
// its status is failed or cancelled.
type ResponseError struct {
	ID      string // of the response
	Status  string // "failed" or "cancelled"
	Code    string // such as "server_error" or "rate_limit_exceeded"; an open set
	Type    string // such as "service_unavailable_error"; often empty, an open set
	Message string
	Param   string // what part of the request it is about; often empty
}

func (e *ResponseError) Error() string {
	s := "fnloop: response: " + e.Status
	if e.ID != "" {
		s = fmt.Sprintf("fnloop: response %s: %s", e.ID, e.Status)
	}
	if word := cmp.Or(e.Code, e.Type); word != "" {
		s += ": " + word
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// A ProtocolError says that what the server sent is no usable response: a page of
// HTML, a response without a status, two calls with one ID. None of its calls were
// run.
type ProtocolError struct {
	ID     string // of the response, if it had one
	Reason string
}

func (e *ProtocolError) Error() string {
	if e.ID != "" {
		return fmt.Sprintf("fnloop: response %s: %s", e.ID, e.Reason)
	}
	return "fnloop: response: " + e.Reason
}

// An UnsupportedItemError is an item in a response that only the client can
// answer and a Loop cannot, such as a computer_call. The response's calls were
// not run, and the conversation continues from before it.
type UnsupportedItemError struct {
	Type string // of the item
	ID   string // of the item
}

func (e *UnsupportedItemError) Error() string {
	return fmt.Sprintf("fnloop: item %s of type %q needs an answer that a Loop cannot give; do not offer its tool to the model", e.ID, e.Type)
}
