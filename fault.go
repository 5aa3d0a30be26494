package fnloop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A fault is what a server says of a request that failed. Servers say it in the
// answer to a request, in an event of a stream, in a response whose status is
// failed and in a message on a WebSocket; it is read and judged in the same way
// wherever it stands.
type fault struct {
	status      int    // of HTTP, or the number that stands for it; zero is none
	kind        string // its type
	code        string
	param       string
	message     string
	wait        time.Duration // that the server asks for; negative is none
	shouldRetry string        // the header X-Should-Retry
}

// newFault reads a fault from JSON that may hold one: an object with code and
// message, one that has such an object or a text as its member error, or a text.
// The header may be nil.
func newFault(status int, header http.Header, data []byte) *fault {
	f := &fault{wait: -1}
	f.read(data)
	if status != 0 {
		f.status = status
	}
	if wait := retryAfter(header); wait >= 0 {
		f.wait = wait
	}
	if f.wait < 0 {
		f.wait = waitInText(f.message)
	}
	f.shouldRetry = header.Get("X-Should-Retry")
	return f
}

// UnmarshalJSON reads the member error of a response.
func (f *fault) UnmarshalJSON(data []byte) error {
	*f = *newFault(0, nil, data)
	return nil
}

// read takes over what data says. Members of other types than those expected
// count as missing.
func (f *fault) read(data []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		json.Unmarshal(data, &f.message)
		return
	}
	text := func(names ...string) (s string) {
		for _, name := range names {
			if json.Unmarshal(members[name], &s) == nil && s != "" {
				return s
			}
		}
		return ""
	}
	set := func(into *string, s string) {
		if s != "" {
			*into = s
		}
	}
	if kind := text("type"); kind != "error" { // which is the type of the event
		set(&f.kind, kind)
	}
	set(&f.code, text("code"))
	set(&f.param, text("param"))
	set(&f.message, text("message", "detail"))
	for _, name := range []string{"status", "status_code", "code"} {
		number := strings.Trim(string(members[name]), `"`)
		if n, err := strconv.Atoi(number); err == nil && 400 <= n && n < 600 {
			f.status = n
			if f.code == "" && name == "code" {
				f.code = number
			}
		}
	}
	if status := text("status"); f.kind == "" && f.status == 0 {
		set(&f.kind, status) // as google.rpc.Status has it
	}
	f.readWait(members)
	if nested := bytes.TrimSpace(members["error"]); len(nested) > 0 && (nested[0] == '{' || nested[0] == '"') {
		f.read(nested)
	}
}

// readWait looks for a wait among the members of an error.
func (f *fault) readWait(members map[string]json.RawMessage) {
	var headers map[string]string
	if json.Unmarshal(members["headers"], &headers) == nil {
		h := make(http.Header)
		for name, value := range headers {
			h.Set(name, value)
		}
		if wait := retryAfter(h); wait >= 0 {
			f.wait = wait
		}
	}
	for name, value := range members {
		value := strings.Trim(string(value), `"`)
		switch plainWord(name) {
		case "retryafterms":
			value += "ms"
		case "retryafter", "retryafterseconds", "retrydelay", "resetsinseconds":
		default:
			continue
		}
		if wait := parseWait(value); wait >= 0 {
			f.wait = wait
		}
	}
	var details []map[string]json.RawMessage
	if json.Unmarshal(members["details"], &details) == nil {
		for _, d := range details {
			f.readWait(d)
		}
	}
}

// fill takes from other what f does not say itself.
func (f *fault) fill(other *fault) {
	for _, s := range []struct {
		into *string
		from string
	}{{&f.kind, other.kind}, {&f.code, other.code}, {&f.param, other.param}, {&f.message, other.message}} {
		if *s.into == "" {
			*s.into = s.from
		}
	}
	if f.status == 0 {
		f.status = other.status
	}
	if f.wait < 0 {
		f.wait = other.wait
	}
}

// maybeDelivered reports whether the API may have made a response before it failed.
func (f *fault) maybeDelivered() bool {
	return f.status == 0 || f.status == http.StatusRequestTimeout || f.status >= http.StatusInternalServerError
}

// transient reports whether the same request may succeed later. The first rule
// that matches decides.
func (f *fault) transient() bool {
	for _, rule := range faultRules {
		if rule.match(f) {
			return rule.transient
		}
	}
	return false
}

var (
	previousText = regexp.MustCompile(`(?i)previous[_ ]response`)
	missingText  = regexp.MustCompile(`(?i)not (?:be )?found|does not exist|no such|unknown|expired|no longer|deleted`)
)

// forgotten reports whether the API refuses a request because it has lost the
// response id that it continues, or never kept it. OpenAI has a code for it,
// accounts with zero data retention get another, and servers without storage
// say it in words of their own.
func (f *fault) forgotten(id string) bool {
	if f.status >= http.StatusInternalServerError || f.status == http.StatusTooManyRequests || serversText.MatchString(f.message) {
		return false
	}
	switch {
	case strings.Contains(plainWord(f.code), "previousresponse"), f.param == "previous_response_id", previousText.MatchString(f.message):
		return true
	case strings.Contains(f.message, id) && missingText.MatchString(f.message):
		return true
	}
	return f.status == http.StatusNotFound && strings.Contains(strings.ToLower(f.message), "response") && missingText.MatchString(f.message)
}

// A faultRule is a row of the table of failures.
type faultRule struct {
	transient bool
	match     func(*fault) bool
	why       string
}

// faultRules say which failures pass. What can never succeed comes first, since
// a server may call it by the status of what passes. Then the more special word
// decides before the more general one: the code, the type where it names the
// server, the status, the type where it names the client, the message.
var faultRules = []faultRule{
	{false, codeOrTypeIs(noMoney), "credit does not come back by waiting"},
	{false, hasStatus(http.StatusPaymentRequired), "nor does it come under another name"},
	{false, quotaInText, "the same, where it is said in words and no wait is named"},
	{false, tooLarge, "the request is larger than the limit itself"},
	{true, shouldRetry("true"), "the server knows"},
	{false, shouldRetry("false"), "the server knows"},
	{true, codeIs(serversWord), "the code names a trouble of the server's, or its load"},
	{false, codeIs(clientsWord), "the code names what is wrong with the request"},
	{true, typeIs(serversWord), "so does the type; it decides also where the code is new"},
	{true, hasStatus(http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests), "another moment, another answer"},
	{false, hasStatus(http.StatusNotImplemented, http.StatusHTTPVersionNotSupported), "the server cannot do it at any time"},
	{true, func(f *fault) bool { return f.status >= http.StatusInternalServerError }, "the server failed"},
	{false, typeIs(clientsWord), "the type names what is wrong with the request"},
	{true, messageSays(serversText), "no code, type or status says more than the message does"},
	{false, func(f *fault) bool { return f.status != 0 }, "the request was refused, and would be again"},
	{false, messageSays(clientsText), "the message names what is wrong with the request"},
	{false, func(f *fault) bool { return f.code != "" || f.kind != "" }, "a new word that names neither side may be about the request"},
	{true, func(*fault) bool { return true }, "a server that took the request and cannot say what failed has failed itself"},
}

// The words are those of OpenAI's service, of Azure, Anthropic, Google and vLLM,
// and what such words are made of, as new ones come. They are compared without
// case and punctuation, because ServiceUnavailable, service_unavailable and
// service_unavailable_error are one word.
var (
	noMoney = regexp.MustCompile(`^insufficientquota|creditbalance|insufficientcredit|spendlimit|usagelimit|billing|paymentrequired`)

	serversWord = regexp.MustCompile(`server(?:error|busy|failure)|overload|unavailable|^internal|slowdown|ratelimit|toomanyrequests|` +
		`throttl|timeout|timedout|deadlineexceeded|resourceexhausted|capacity|temporar|tryagain|retrylater|` +
		`gateway|upstream|connection(?:error|reset)|conversationlocked|^apierror$|^tokens$|^requests$`)

	clientsWord = regexp.MustCompile(`invalid|unsupported|notsupported|notfound|unknownparameter|missing|malformed|badrequest|` +
		`unauthori[sz]ed|authentication|permission|forbidden|denied|policy|moderation|safety|contentfilter|` +
		`toolarge|toolong|abovemax|belowmin|exclusive|^empty|unprocessable|validation|contextlength|mismatch`)

	serversText = regexp.MustCompile(`(?i)overload|at capacity|temporar|unavailable|tim(?:ed|e)[ -]?out|internal (?:server )?error|` +
		`server (?:had an )?error|too many requests|rate limit|(?:try again|retry) (?:later|in|after|shortly|your request)|error occurred while processing`)

	clientsText = regexp.MustCompile(`(?i)\b(?:invalid|unsupported|not supported|required|must|policy|not allowed|not found|` +
		`does not exist|denied|unauthori[sz]ed|too (?:large|long)|malformed)\b`)
)

func hasStatus(statuses ...int) func(*fault) bool {
	return func(f *fault) bool {
		for _, s := range statuses {
			if f.status == s {
				return true
			}
		}
		return false
	}
}

func shouldRetry(value string) func(*fault) bool {
	return func(f *fault) bool { return f.shouldRetry == value }
}

func codeIs(words *regexp.Regexp) func(*fault) bool {
	return func(f *fault) bool { return words.MatchString(plainWord(f.code)) }
}

func typeIs(words *regexp.Regexp) func(*fault) bool {
	return func(f *fault) bool { return words.MatchString(plainWord(f.kind)) }
}

func codeOrTypeIs(words *regexp.Regexp) func(*fault) bool {
	return func(f *fault) bool { return codeIs(words)(f) || typeIs(words)(f) }
}

func messageSays(text *regexp.Regexp) func(*fault) bool {
	return func(f *fault) bool { return text.MatchString(f.message) }
}

// quotaInText matches a quota that is used up. With a wait beside it, it is one
// of a minute or a day.
func quotaInText(f *fault) bool {
	return f.wait < 0 && strings.Contains(f.message, "exceeded your current quota")
}

var (
	tooLargeText = regexp.MustCompile(`(?i)request too large|must be reduced|reduce the length|maximum context length|context window`)
	limitInText  = regexp.MustCompile(`(?i)\blimit:? ([\d,]+)`)
	askedInText  = regexp.MustCompile(`(?i)\brequested:? ([\d,]+)`)
)

// tooLarge matches a request that asks for more than the limit. OpenAI answers
// it with the status and the code of a rate limit.
func tooLarge(f *fault) bool {
	if f.status == http.StatusRequestEntityTooLarge || plainWord(f.code) == "contextlengthexceeded" || tooLargeText.MatchString(f.message) {
		return true
	}
	number := func(text *regexp.Regexp) (float64, bool) {
		m := text.FindStringSubmatch(f.message)
		if m == nil {
			return 0, false
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		return n, err == nil
	}
	limit, limited := number(limitInText)
	asked, asks := number(askedInText)
	return limited && asks && asked > limit
}

// plainWord is a code or type without its case and punctuation.
func plainWord(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, s)
}
