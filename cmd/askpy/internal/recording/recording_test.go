package recording

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/png"
	"reflect"
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	for _, test := range []struct {
		name           string
		recorded, made string // bodies
		want           []difference
	}{
		{"order and spelling mean nothing", `{"a":1,"b":"x"}`, ` { "b" : "\u0078", "a" : 1.0 } `, nil},
		{"big numbers", `{"a":9007199254740993}`, `{"a":9007199254740992}`, []difference{{"a", "9007199254740993", "9007199254740992"}}},
		{"types", `{"a":1}`, `{"a":"1"}`, []difference{{"a", "1", `"1"`}}},
		{"null is not nothing", `{"a":null}`, `{}`, []difference{{"a", "null", nothing}}},
		{"more", `[1]`, `[1,{"b":true}]`, []difference{{"[1]", nothing, `{"b":true}`}}},
		{"order of lists", `{"a":[1,2]}`, `{"a":[2,1]}`, []difference{{"a[0]", "1", "2"}, {"a[1]", "2", "1"}}},
		{"odd names", `{"a b":{"":1}}`, `{"a b":{"":2}}`, []difference{{`["a b"][""]`, "1", "2"}}},
		{"documents in strings", `{"o":"{\"x\":1}"}`, `{"o":"{\"x\":2}"}`, []difference{{"o.x", "1", "2"}}},
		{"white space in strings counts", `{"o":"{\"x\":1}"}`, `{"o":"{\"x\": 1}"}`, []difference{{"o", `"{\"x\":1}"`, `"{\"x\": 1}"`}}},
		{"descriptions of tools are the runner's", `{"tools":[{"name":"a","description":"x"}]}`, `{"tools":[{"name":"a"}]}`, nil},
		{"how the answer comes means nothing", `{"stream":true,"model":"m"}`, `{"model":"m"}`, nil},
		{"other streams are the model's", `{"x":{"stream":true}}`, `{"x":{}}`, []difference{{"x.stream", "true", nothing}}},
		{"other descriptions are not", `{"description":"x"}`, `{"description":"y"}`, []difference{{"description", `"x"`, `"y"`}}},
		{"no JSON", `a`, `b`, []difference{{"the body", `"a"`, `"b"`}}},
		{"trailing data", `{} {}`, `{}`, []difference{{"the body", `"{} {}"`, `"{}"`}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := differences(exchange{"POST", "responses", test.recorded}, exchange{"POST", "responses", test.made})
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("differences = %q, want %q", got, test.want)
			}
		})
	}
	got := differences(exchange{"POST", "responses", "{}"}, exchange{"GET", "models", "{}"})
	if want := []difference{{"the method", "POST", "GET"}, {"the path", "responses", "models"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("differences = %q, want %q", got, want)
	}
}

// Pictures are compared by their pixels: how they are compressed means nothing.
func TestDifferencesOfPictures(t *testing.T) {
	url := func(shade uint8, level png.CompressionLevel) string {
		img := image.NewGray(image.Rect(0, 0, 40, 30))
		img.SetGray(7, 8, color.Gray{Y: shade})
		var b bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: level}).Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
	}
	one := url(1, png.NoCompression)
	for _, test := range []struct {
		name string
		made string
		same bool
	}{
		{"compressed in another way", url(1, png.BestCompression), true},
		{"another pixel", url(2, png.NoCompression), false},
		{"no picture", one[:len(one)-40], false},
		{"no data", "data:image/png;base64,", false},
		{"another kind", strings.Replace(one, "png", "gif", 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.made == one {
				t.Fatal("the two are equal as texts")
			}
			if got := len(compare(nil, "x", one, test.made)) == 0; got != test.same {
				t.Errorf("the same = %v, want %v", got, test.same)
			}
		})
	}
}

// Of long texts the part is shown in which they differ.
func TestClip(t *testing.T) {
	a := strings.Repeat("é", 500) + "A" + strings.Repeat("é", 500)
	b := strings.Replace(a, "A", "B", 1)
	got := compare(nil, "x", a, b)
	if len(got) != 1 || !strings.Contains(got[0].recorded, "A") || !strings.Contains(got[0].made, "B") || len(got[0].made) > 200 {
		t.Errorf("compare = %q", got)
	}
	if !strings.HasPrefix(got[0].made, `..."é`) || !strings.HasSuffix(got[0].made, `é"...`) {
		t.Errorf("the clipped text is %s", got[0].made)
	}
}

func TestScrubber(t *testing.T) {
	s := NewScrubber([]string{"test", "k1", "", "sk-123", `a"b<c/d&1234`})
	for in, want := range map[string]string{
		"the latest test of k1":                         "the latest test of k1", // words are no secrets
		"is sk-123 it?":                                 "is SCRUBBED it?",
		`{"x":"a\"b<c/d&1234"}`:                         `{"x":"SCRUBBED"}`,
		`{"x":"a\"b\u003cc/d\u00261234"}`:               `{"x":"SCRUBBED"}`,
		`{"x":"{\"y\":\"a\\\"b<c/d&1234\"}"}`:           `{"x":"{\"y\":\"SCRUBBED\"}"}`,
		"/?key=a%22b%3Cc%2Fd%261234":                    "/?key=SCRUBBED",
		"task-0123456789abcdef0123 org-anisation":       "task-0123456789abcdef0123 org-anisation",
		"sk-proj-0123456789abcdef of proj_0123456789ab": "SCRUBBED of proj_0123456789ab",
	} {
		if got := s.clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// A secret that comes in pieces is one all the same.
func TestCleanStream(t *testing.T) {
	s := NewScrubber([]string{"sk-very-secret"})
	const stream = `event: response.output_text.delta
data: {"type":"response.output_text.delta","output_index":0,"delta":"It is sk-ve"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"plain "}

data: {"type":"response.output_text.delta","output_index":0,"delta":"ry-sec"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"text"}

data: {"type":"response.output_text.delta","output_index":0,"delta":"ret."}

data: {"type":"response.completed","text":"It is sk-very-secret."}

`
	const want = `event: response.output_text.delta
data: {"delta":"It is SCRUBBED.","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"plain "}

data: {"delta":"","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"text"}

data: {"delta":"","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.completed","text":"It is SCRUBBED."}

`
	if got := s.cleanStream(stream); got != want {
		t.Errorf("cleanStream = %s", got)
	}
	if !streamEnded([]byte(stream)) || streamEnded([]byte(stream[:len(stream)-80])) {
		t.Error("streamEnded does not tell where the stream ends")
	}
}
