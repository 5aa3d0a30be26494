package chatstore_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

// form is a body of fields, whose names and values are in turn, and its type.
func form(t *testing.T, files map[string]string, fields ...string) (io.Reader, string) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(t, w.WriteField(fields[i], fields[i+1]))
	}
	for name, data := range files {
		part, err := w.CreateFormFile("file", name)
		require.NoError(t, err)
		_, err = io.WriteString(part, data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &body, w.FormDataContentType()
}

func read(t *testing.T, body io.Reader, kind string) (chatstore.Message, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Content-Type", kind)
	return chatstore.ReadForm(httptest.NewRecorder(), r)
}

func TestReadForm(t *testing.T) {
	body, kind := form(t, map[string]string{"a.csv": "1,2"}, "version", "7", "parent", "abc", "text", "Grüße",
		"decisions", `{"call_1":{"approve":true},"call_2":{"approve":false,"reason":"no"}}`)
	m, err := read(t, body, kind)
	require.NoError(t, err)
	assert.Equal(t, chatstore.Message{
		Version: 7, Parent: "abc", Text: "Grüße", Files: []chatstore.File{{Name: "a.csv", Data: []byte("1,2")}},
		Decisions: map[string]fnloop.Decision{"call_1": {Approve: true}, "call_2": {Reason: "no"}},
	}, m)
	body, kind = form(t, nil, "version", "0")
	m, err = read(t, body, kind)
	require.NoError(t, err, "to go on needs nothing else")
	assert.Equal(t, chatstore.Message{}, m)
}

func TestReadForm_bad(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fields []string
		field  string
		reason string
	}{
		{"no version", []string{"text", "hi"}, "version", `The version is "", not the number that the chat has.`},
		{"a version that is no number", []string{"version", "1.5"}, "version", `The version is "1.5", not the number that the chat has.`},
		{"a version that is too large", []string{"version", "99999999999999999999"}, "version", "The version is"},
		{"decisions that are no JSON", []string{"version", "1", "decisions", "yes"}, "decisions", "The decisions are not JSON like"},
		{"decisions that are a list", []string{"version", "1", "decisions", `[true]`}, "decisions", "The decisions are not JSON like"},
		{"decisions that decide nothing", []string{"version", "1", "decisions", `{}`}, "decisions", "The decisions are not JSON like"},
		{"null", []string{"version", "1", "decisions", `null`}, "decisions", "The decisions are not JSON like"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body, kind := form(t, nil, tt.fields...)
			_, err := read(t, body, kind)
			var input *chatstore.InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
			assert.Contains(t, input.Reason, tt.reason)
			assert.Equal(t, "chatstore: "+input.Field+": "+input.Reason, err.Error())
		})
	}
	var input *chatstore.InputError
	_, err := read(t, strings.NewReader(`{"text":"hi"}`), "application/json")
	require.ErrorAs(t, err, &input, "no form")
	_, err = read(t, strings.NewReader("--x\r\nContent-Disposition: form-data; na"), "multipart/form-data; boundary=x")
	require.ErrorAs(t, err, &input, "half a form")

	var large *http.MaxBytesError
	_, err = read(t, io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"),
		strings.NewReader(strings.Repeat("x", chatstore.MaxForm))), "multipart/form-data; boundary=x")
	require.ErrorAs(t, err, &large)
}
