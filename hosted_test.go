package fnloop_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

const (
	searchItem  = `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"oslo","sources":[{"type":"url","url":"https://x.example"}]}}`
	imageItem   = `{"type":"image_generation_call","id":"ig_1","status":"completed","output_format":"jpeg","result":"aGVsbG8=","revised_prompt":"a cat"}`
	programItem = `{"type":"code_interpreter_call","id":"ci_1","status":"completed","container_id":"cntr_1","code":"plot()","outputs":[{"type":"logs","logs":"1"},{"type":"image","url":"https://x.example/plot.png"}]}`
	mcpItem     = `{"type":"mcp_call","id":"mcp_1","name":"roll","server_label":"dice","arguments":"{}","output":"4","error":null}`
	citedItem   = `{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Ösló is cold. ","annotations":[{"type":"url_citation","url":"https://x.example","title":"X","start_index":0,"end_index":4}]},` +
		`{"type":"output_text","text":"See plot.png.","annotations":[{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1","filename":"plot.png","start_index":4,"end_index":12},{"type":"file_citation","file_id":"file_1","filename":"a.pdf","index":13},{"type":"url_citation","url":"u","start_index":90,"end_index":-5}]}]}`
)

// What hosted tools did, made and found is on the Answer and in the events,
// streamed or not.
func TestHostedTools(t *testing.T) {
	output := strings.Join([]string{searchItem, imageItem, programItem, mcpItem,
		`{"type":"message","id":"msg_0","content":[{"type":"output_text","text":"First."}]}`, citedItem}, ",")
	whole := `{"id":"resp_1","object":"response","status":"completed","output":[` + output + `]}`
	var streamed []string
	for i, item := range []string{searchItem, imageItem, programItem, mcpItem, "", citedItem} {
		if item == "" {
			streamed = append(streamed, `{"type":"response.output_text.delta","output_index":4,"delta":"First."}`)
			continue
		}
		if i < 4 {
			streamed = append(streamed, fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, strings.Replace(item, "completed", "in_progress", 1)))
		} else {
			streamed = append(streamed, `{"type":"response.output_text.delta","output_index":5,"delta":"Ösló is cold. See plot.png."}`)
		}
		streamed = append(streamed, fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, item))
	}
	streamed = append(streamed, `{"type":"response.completed","response":`+whole+`}`)
	for form, body := range map[string]string{"whole": whole, "streamed": frames(streamed...)} {
		t.Run(form, func(t *testing.T) {
			seen, ans, err := watch(t, sse(t, "", body).Events(t.Context(), nil, "hi"))
			require.NoError(t, err)
			ans = store(t, ans)

			assert.Equal(t, "First.\nÖsló is cold. See plot.png.", ans.Text)
			require.Len(t, ans.Citations, 4)
			for i, want := range []fnloop.Citation{
				{Kind: "url", URL: "https://x.example", Title: "X", Text: "Ösló"},
				{Kind: "container_file", FileID: "cfile_1", FileName: "plot.png", ContainerID: "cntr_1", Text: "plot.png"},
				{Kind: "file", FileID: "file_1", FileName: "a.pdf"},
				{Kind: "url", URL: "u"}, // whose place is nowhere
			} {
				got := ans.Citations[i]
				assert.Equal(t, want.Text, ans.Text[got.Start:got.End], "its place is in the text")
				want.Start, want.End = got.Start, got.End
				assert.Equal(t, want, got)
			}

			require.Len(t, ans.Hosted, 4)
			assert.Equal(t, "ws_1", ans.Hosted[0].ID)
			assert.Equal(t, "web_search_call", ans.Hosted[0].Kind)
			assert.JSONEq(t, searchItem, string(ans.Hosted[0].Item))
			assert.NotContains(t, string(ans.Hosted[1].Item), "aGVsbG8=")
			assert.Contains(t, string(ans.Hosted[1].Item), "a cat")
			assert.Equal(t, "roll", ans.Hosted[3].Name)
			assert.Equal(t, "dice", ans.Hosted[3].Server)
			assert.Equal(t, []fnloop.File{
				{Call: "ig_1", MediaType: "image/jpeg", Data: []byte("hello")},
				{Call: "ci_1", MediaType: "image/png", URL: "https://x.example/plot.png", ContainerID: "cntr_1"},
				{Name: "plot.png", FileID: "cfile_1", ContainerID: "cntr_1"},
			}, ans.Files)

			var started, finished []string
			var files []fnloop.File
			var cited []string
			for _, e := range seen {
				switch e := e.(type) {
				case fnloop.HostedStarted:
					started = append(started, e.ID)
				case fnloop.HostedFinished:
					assert.Contains(t, started, e.ID)
					finished = append(finished, e.ID)
					assert.NotEmpty(t, e.Item)
				case fnloop.FileAdded:
					files = append(files, e.File)
				case fnloop.CitationAdded:
					assert.Equal(t, 5, e.Item)
					assert.Equal(t, e.Text, "Ösló is cold. See plot.png."[e.Start:e.End])
					cited = append(cited, e.Text)
				}
			}
			assert.Equal(t, []string{"ws_1", "ig_1", "ci_1", "mcp_1"}, started)
			assert.Equal(t, started, finished, "each once")
			assert.Equal(t, ans.Files, files)
			assert.Equal(t, []string{"Ösló", "plot.png", "", ""}, cited)
		})
	}
}

func TestHostedProgress(t *testing.T) {
	partial := base64.StdEncoding.EncodeToString([]byte("half"))
	loop := sse(t, "", frames(created,
		`{"type":"response.web_search_call.in_progress","output_index":0,"item_id":"ws_1"}`,
		`{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1"}`,
		`{"type":"response.code_interpreter_call_code.delta","item_id":"ci_1","delta":"print("}`,
		`{"type":"response.code_interpreter_call_code.done","item_id":"ci_1","code":"print("}`,
		`{"type":"response.mcp_call_arguments.delta","item_id":"mcp_1","delta":"{}"}`,
		`{"type":"response.image_generation_call.partial_image","item_id":"ig_1","partial_image_b64":"`+partial+`","partial_image_index":0}`,
		`{"type":"response.brand_new_call.pondering","item_id":"bn_1","response":{"status":"completed"}}`,
		completed))
	seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	var got []fnloop.HostedProgress
	for _, e := range seen {
		if p, ok := e.(fnloop.HostedProgress); ok {
			got = append(got, p)
		}
	}
	assert.Equal(t, []fnloop.HostedProgress{
		{ID: "ws_1", Kind: "web_search_call", Status: "in_progress"},
		{ID: "ws_1", Kind: "web_search_call", Status: "searching"},
		{ID: "ci_1", Kind: "code_interpreter_call", Text: "print("},
		{ID: "mcp_1", Kind: "mcp_call", Text: "{}"},
		{ID: "ig_1", Kind: "image_generation_call", Status: "partial_image", Image: partial},
		{ID: "bn_1", Kind: "brand_new_call", Status: "pondering"},
	}, got)
}
