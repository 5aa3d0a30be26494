package strict_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/cputime"
	"github.com/fnloop/fnloop/internal/strict"
)

// order has a field for most of what can go wrong.
type order struct {
	ID    int64   `json:"id"`
	Note  *string `json:"note"`
	Unit  string  `json:"unit" jsonschema:"enum=kg,enum=lb"`
	Items []item  `json:"items" jsonschema:"minItems=1,maxItems=3"`
}

type item struct {
	Count int8    `json:"count"`
	Price float64 `json:"price" jsonschema:"minimum=0,exclusiveMaximum=1000"`
	Code  string  `json:"code" jsonschema:"pattern=^[A-Z]+$"`
	Odd   bool    `json:"odd name"`
}

func decoderOf[T any](t testing.TB) *strict.Decoder {
	t.Helper()
	schema, err := strict.Schema(of[T]())
	require.NoError(t, err)
	d, err := strict.Compile(schema)
	require.NoError(t, err)
	return d
}

const goodItem = `{"count":1,"price":2.5,"code":"A","odd name":true}`

func withItems(items string) string {
	return `{"id":1,"note":null,"unit":"kg","items":[` + items + `]}`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	d := decoderOf[order](t)
	for _, c := range []struct{ name, args, want, reason string }{
		{"whole", withItems(goodItem), "", ""},
		{"blanks", " \r\n\t" + withItems(goodItem) + "\n", "", "blanks around are JSON"},
		{"missing_nullable", `{"id":1,"unit":"kg","items":[` + goodItem + `]}`, "", "a missing nullable key counts as null"},
		{"any_order", `{"items":[` + goodItem + `],"unit":"lb","id":1}`, "", "order does not matter"},
		{"escaped_key", `{"\u0069d":1,"unit":"kg","items":[` + goodItem + `]}`, "", "an escaped key is that key"},
		{"nul", `{"id":1,"note":"a\u0000b","unit":"kg","items":[` + goodItem + `]}`, "", "NUL is a character"},
		{"surrogates", `{"id":1,"note":"\ud83d\ude00","unit":"kg","items":[` + goodItem + `]}`, "", "a pair is a character"},
		{"replacement", `{"id":1,"note":"` + "\ufffd" + `","unit":"kg","items":[` + goodItem + `]}`, "", "U+FFFD itself is valid"},
		{"beyond_2_53", `{"id":9007199254740993,"unit":"kg","items":[` + goodItem + `]}`, "", "exact"},

		{"empty", ``, "arguments: missing keys id (integer), unit (string), items (array)", "all missing keys are named"},
		{"null", `null`, "arguments: expected object, got null", "encoding/json accepts it"},
		{"array", `[]`, "arguments: expected object, got array", ""},
		{"string", `"x"`, `arguments: expected object, got string "x"`, ""},
		{"number", `1`, "arguments: expected object, got number 1", ""},
		{"bool", `true`, "arguments: expected object, got boolean true", ""},
		{"json_in_string", `"{\"id\":1}"`, "send the JSON itself", "a common mistake"},
		{"missing", `{"id":1,"unit":"kg"}`, "items: missing (expected array of 1 to 3 items)", ""},
		{"missing_inside", withItems(`{"count":1,"price":1,"odd name":true}`), "items[0].code: missing (expected string that matches ^[A-Z]+$)", ""},
		{"null_field", `{"id":null,"unit":"kg","items":[` + goodItem + `]}`, "id: expected integer, got null", ""},
		{"null_element", withItems(goodItem + ",null"), "items[1]: expected object, got null", ""},
		{"unknown", `{"id":1,"unit":"kg","items":[` + goodItem + `],"extra":{"a":[1,"}"]}}`, `arguments: unknown key "extra" (known keys are "id", "note", "unit", "items")`, ""},
		{"unknown_inside", withItems(`{"count":1,"price":1,"code":"A","odd name":true,"x":1}`), `items[0]: unknown key "x"`, ""},
		{"letter_case", `{"ID":1,"unit":"kg","items":[` + goodItem + `]}`, `unknown key "ID" (the key is "id")`, "encoding/json accepts it"},
		{"duplicate", `{"id":1,"id":1,"unit":"kg","items":[` + goodItem + `]}`, "id: duplicate key", ""},
		{"duplicate_escaped", `{"id":1,"\u0069\u0064":1,"unit":"kg","items":[` + goodItem + `]}`, "id: duplicate key", ""},
		{"duplicate_inside", withItems(`{"count":1,"price":1,"code":"A","odd name":true,"odd name":false}`), `items[0]["odd name"]: duplicate key`, ""},
		{"string_number", withItems(goodItem + `,{"count":"2","price":1,"code":"A","odd name":true}`), `items[1].count: expected integer from -128 to 127, got string "2"`, ""},
		{"number_string", `{"id":1,"unit":5,"items":[` + goodItem + `]}`, `unit: expected one of "kg", "lb", got number 5`, ""},
		{"string_bool", withItems(`{"count":1,"price":1,"code":"A","odd name":"true"}`), `items[0]["odd name"]: expected boolean, got string "true"`, ""},
		{"object_array", `{"id":1,"unit":"kg","items":` + goodItem + `}`, "items: expected array of 1 to 3 items, got object", ""},
		{"array_in_string", `{"id":1,"unit":"kg","items":"[]"}`, "send the JSON itself", ""},
		{"fraction", `{"id":1.5,"unit":"kg","items":[` + goodItem + `]}`, "id: expected integer, got 1.5", ""},
		{"integral_float", `{"id":3.0,"unit":"kg","items":[` + goodItem + `]}`, "id: expected integer, got 3.0 (write it without fraction and exponent)", "encoding/json could not decode it"},
		{"exponent", `{"id":1e1,"unit":"kg","items":[` + goodItem + `]}`, "id: expected integer, got 1e1 (write", ""},
		{"small_overflow", withItems(`{"count":300,"price":1,"code":"A","odd name":true}`), "items[0].count: expected integer from -128 to 127, got 300", ""},
		{"large_overflow", `{"id":9223372036854775808,"unit":"kg","items":[` + goodItem + `]}`, "id: expected integer from -9223372036854775808 to 9223372036854775807, got 9223372036854775808", ""},
		{"float_overflow", withItems(`{"count":1,"price":1e400,"code":"A","odd name":true}`), "items[0].price: expected number of at least 0 less than 1000, got 1e400", ""},
		{"huge_exponent", withItems(`{"count":1,"price":1e-99999999999999999999,"code":"A","odd name":true}`), "", "tiny, but a number"},
		{"bound", withItems(`{"count":1,"price":-0.5,"code":"A","odd name":true}`), "items[0].price: expected number of at least 0 less than 1000, got -0.5", ""},
		{"open_bound", withItems(`{"count":1,"price":1000,"code":"A","odd name":true}`), "got 1000", ""},
		{"enum", `{"id":1,"unit":"oz","items":[` + goodItem + `]}`, `unit: expected one of "kg", "lb", got "oz"`, ""},
		{"pattern", withItems(`{"count":1,"price":1,"code":"a","odd name":true}`), `items[0].code: expected string that matches ^[A-Z]+$, got "a"`, ""},
		{"too_few", withItems(``), "items: expected array of 1 to 3 items, got 0", ""},
		{"too_many", withItems(strings.Repeat(goodItem+",", 3) + goodItem), "items: expected array of 1 to 3 items, got 4", ""},
		{"several", `{"id":"x","unit":"oz","items":[],"a":1}`, "unit: expected", "every problem is told"},

		{"cut", `{"id":1,"unit":"k`, "incomplete JSON", ""},
		{"cut_escape", `{"id":1,"note":"\u00`, "incomplete JSON", "encoding/json misleads here"},
		{"cut_backslash", `{"id":1,"note":"\`, "incomplete JSON", ""},
		{"cut_surrogate", `{"id":1,"note":"\ud83d\ude`, "incomplete JSON", ""},
		{"cut_character", "{\"id\":1,\"note\":\"\xf0\x9f", "incomplete JSON", ""},
		{"cut_word", `{"id":1,"note":nul`, "incomplete JSON", ""},
		{"cut_number", `{"id":-`, "incomplete JSON", ""},
		{"cut_after_colon", `{"id":`, "incomplete JSON", ""},
		{"cut_after_comma", `{"id":1,`, "incomplete JSON", ""},
		{"cut_brace", `{`, "incomplete JSON", ""},
		{"nan", `{"id":NaN}`, "no NaN", ""},
		{"infinity", `{"id":-Infinity}`, "no Infinity", ""},
		{"leading_zero", `{"id":01}`, "must not begin with 0", ""},
		{"plus", `{"id":+1}`, "must not begin with '+'", ""},
		{"comment", `{"id":1 /* x */}`, "unexpected '/'", ""},
		{"comment_first", "// x\n{}", "no comments", ""},
		{"single_quotes", `{'id':1}`, "double quotes", ""},
		{"single_quoted_value", `{"unit":'kg'}`, "double quotes", ""},
		{"bare_key", `{id:1}`, "want a key in double quotes", ""},
		{"trailing_comma", `{"id":1,}`, "trailing comma", ""},
		{"trailing_comma_array", `{"items":[1,]}`, "trailing comma", ""},
		{"python", `{"note":None}`, "write true, false and null", ""},
		{"trailing_text", `{"id":1} done`, "after the JSON value", ""},
		{"second_object", `{}{}`, "after the JSON value", ""},
		{"extra_brace", `{}}`, "after the JSON value", ""},
		{"mismatch", `{"items":[}`, "a value is missing", ""},
		{"mismatch_close", `{"items":[1}`, "want ',' or ']'", ""},
		{"fence", "```json\n{\"id\":1}\n```", "Markdown fence", ""},
		{"prose", `Here you are: {"id":1}`, "bare JSON object", ""},
		{"invalid_utf8", "{\"note\":\"\xff\"}", "invalid UTF-8", "encoding/json replaces it"},
		{"lone_surrogate", `{"note":"\ud800"}`, "lone surrogate", "encoding/json replaces it"},
		{"low_surrogate", `{"note":"\udc00x"}`, "lone surrogate", ""},
		{"two_high", `{"note":"\ud800\ud800"}`, "lone surrogate", ""},
		{"bad_escape", `{"note":"\x41"}`, "bad escape", ""},
		{"raw_newline", "{\"note\":\"a\nb\"}", "raw control character", ""},
		{"byte_order_mark", "\ufeff{}", "not JSON", ""},
		{"deep", strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000), "arguments: nested too deeply, at byte 256 there are more than 256 levels of objects and arrays", "no recursion without bound"},
		{"deep_object", strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), "levels of objects and arrays", ""},
		{"deep_value", `{"note":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "note: expected string or null, got array", ""},
		{"long_value", `{"note":1,"id":"` + strings.Repeat("x", 5000) + `"}`, "…", "only a part is quoted"},
		{"long_key", `{"` + strings.Repeat("k", 5000) + `":1}`, "…", ""},
		{"control", `{"id":"\u0000\n\u2028\u0085"}`, `id: expected integer, got string "\x00\n\u2028\u0085"`, "the text stays on one line"},
		{"many", `{` + manyKeys(200) + `"id":1}`, "and 195 more", "the number of problems is bounded"},
		{"many_equal", `{` + strings.Repeat(`"zzz":"\n\n\n","id":1,`, 200) + `"id":1}`, `"items"); id: duplicate key (send it once); arguments: missing keys unit (string), items (array)`, "each is told once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got order
			err := d.Decode([]byte(c.args), &got)
			if err == nil {
				require.NoError(t, d.Decode([]byte(c.args), nil), "a nil target only tests")
			}
			if c.want == "" {
				require.NoError(t, err, c.reason)
				var want order
				require.NoError(t, json.Unmarshal([]byte(c.args), &want))
				require.Equal(t, want, got)
				return
			}
			e := requireArgumentError(t, err, c.args)
			require.Contains(t, e.Error(), c.want, c.reason)
			require.NotRegexp(t, goNames, e.Error())
			require.Equal(t, strings.HasPrefix(c.name, "cut"), e.Incomplete)
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"z%d":"\n\n\n",`, i)
	}
	return b.String()
}

func TestDecodeTellsAll(t *testing.T) {
	d := decoderOf[order](t)
	err := d.Decode([]byte(`{"id":"x","unit":"oz","items":[{"count":1.5,"price":-1,"code":"A"}],"a":1,"b":2}`), nil)
	e := requireArgumentError(t, err, "")
	require.Equal(t, []string{
		`id: expected integer, got string "x"`,
		`unit: expected one of "kg", "lb", got "oz"`,
		`items[0].count: expected integer from -128 to 127, got 1.5`,
		`items[0].price: expected number of at least 0 less than 1000, got -1`,
		`items[0]["odd name"]: missing (expected boolean)`,
		`arguments: unknown key "a" (known keys are "id", "note", "unit", "items")`,
	}, e.Problems)
	require.True(t, strings.HasSuffix(e.Error(), "; and 1 more"), e.Error())
}

func TestDecodeWrongTarget(t *testing.T) {
	d := decoderOf[struct{}](t)
	for _, into := range []any{order{}, (*order)(nil), 1} {
		err := d.Decode([]byte("{}"), into)
		require.Error(t, err)
		_, ok := errors.AsType[*strict.ArgumentError](err)
		require.False(t, ok, "%T is the caller's mistake", into)
	}
}

// Grumpy panics on some arguments.
type Grumpy struct{ s string }

func (g *Grumpy) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "panic":
		panic("main.Secret at /home/x/y.go:12")
	case "json":
		return json.Unmarshal([]byte(`"x"`), new(int))
	case "time":
		_, err := time.Parse(time.DateOnly, s)
		return err
	case "lines":
		return errors.New("one\ntwo\xff")
	case "long":
		return errors.New(strings.Repeat("x", 1<<20))
	}
	g.s = string(text)
	return nil
}

func TestDecodeOwnMethods(t *testing.T) {
	t.Parallel()
	type args struct {
		List []struct {
			G *Grumpy `json:"g"`
			B []byte  `json:"b"`
		} `json:"list"`
		F float32 `json:"f"`
	}
	d := decoderOf[args](t)
	for _, c := range []struct{ value, want string }{
		{"panic", `list[1].g: not accepted, got "panic"`},
		{"json", `list[1].g: not accepted, got "json"`},
		{"time", `list[1].g: expected string in date-time form`},
		{"lines", `list[1].g: not accepted (one two�), got "lines"`},
		{"long", `list[1].g: not accepted (xxx`},
		{"fine", ``},
	} {
		t.Run(c.value, func(t *testing.T) {
			t.Parallel()
			text := `{"list":[{"g":"fine","b":""},{"g":"` + c.value + `","b":"AA=="}],"f":1}`
			err := d.Decode([]byte(text), new(args))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			e := requireArgumentError(t, err, text)
			require.Contains(t, e.Error(), c.want)
			require.NotRegexp(t, goNames, e.Error())
			require.NotNil(t, errors.Unwrap(e), "the log needs the cause")
		})
	}
	err := d.Decode([]byte(`{"list":[{"g":"panic","b":"!"},{"g":"json","b":"AA=="}],"f":1e40}`), new(args))
	e := requireArgumentError(t, err, "")
	require.Equal(t, []string{
		`list[0].g: not accepted, got "panic"`,
		`list[0].b: expected bytes in base64, got "!"`,
		`list[1].g: not accepted, got "json"`,
		`f: expected number from -3.4e38 to 3.4e38, got 1e40`,
	}, e.Problems)
}

func TestDecodeUnions(t *testing.T) {
	t.Parallel()
	schema := withDefs(`{"anyOf":[{"$ref":"#/$defs/add"},{"$ref":"#/$defs/neg"},{"type":"integer","minimum":0},{"type":"string","enum":["x"]},{"type":"string","pattern":"^[0-9]+$"}]}`,
		`{"expr":{"anyOf":[{"$ref":"#/$defs/add"},{"$ref":"#/$defs/neg"},{"type":"integer"},{"$ref":"#/$defs/expr2"}]},
		"expr2":{"anyOf":[{"$ref":"#/$defs/expr"},{"type":"null"}]},
		"add":`+closed(`"op":{"type":"string","const":"+"},"l":{"$ref":"#/$defs/expr"},"r":{"$ref":"#/$defs/expr"}`, "op", "l", "r")+`,
		"neg":`+closed(`"op":{"type":"string","const":"-"},"e":{"$ref":"#/$defs/expr"}`, "op", "e")+`}`)
	d, err := strict.Compile([]byte(schema))
	require.NoError(t, err)
	for _, c := range []struct{ args, want string }{
		{`{"a":1}`, ""},
		{`{"a":"x"}`, ""},
		{`{"a":"42"}`, ""},
		{`{"a":{"op":"+","l":1,"r":{"op":"-","e":null}}}`, ""},
		{`{"a":{"op":"+","l":1}}`, ""}, // expr may be null, so r may be missing
		{`{"a":{"op":"+","l":1,"r":{"op":"-","e":"x"}}}`, "a.r.e: expected object or integer or null, got string"},
		{`{"a":{"op":"*","l":1,"r":2}}`, `a.op: expected "+", got "*"`},
		{`{"a":{"op":"-","l":1}}`, `a: unknown key "l" (known keys are "op", "e")`},
		{`{"a":-1}`, "a: expected integer of at least 0, got -1"},
		{`{"a":"y"}`, `string that matches ^[0-9]+$, got "y"`},
		{`{"a":true}`, "a: expected object or integer of at least 0 or "},
		{`{"a":[]}`, "got array"},
	} {
		err := d.Decode([]byte(c.args), nil)
		if c.want == "" {
			require.NoError(t, err, c.args)
			continue
		}
		require.Contains(t, requireArgumentError(t, err, c.args).Error(), c.want)
	}
}

// TestDecodeUnionsInLinearTime nests a union whose branches cannot be told
// apart before their ends. Trying each anew at every level would take 2^120
// steps.
func TestDecodeUnionsInLinearTime(t *testing.T) {
	t.Parallel()
	branch := func(last string) string {
		return closed(`"`+last+`1":{"type":"null"},"x":{"$ref":"#/$defs/e"},"`+last+`":{"type":"string"}`, last+"1", "x", last)
	}
	schema := withDefs(`{"$ref":"#/$defs/e"}`, `{"e":{"anyOf":[`+branch("p")+`,`+branch("q")+`,{"type":"integer"}]}}`)
	d, err := strict.Compile([]byte(schema))
	require.NoError(t, err)
	args := `{"a":` + strings.Repeat(`{"x":`, 120) + "1" + strings.Repeat(`,"q":""}`, 120) + "}"
	start := time.Now()
	require.NoError(t, d.Decode([]byte(args), nil))
	requireArgumentError(t, d.Decode([]byte(strings.Replace(args, "1", "1.5", 1)), nil), args)
	require.Less(t, time.Since(start), 5*time.Second)
}

// TestDecodeSaysWhatTypesTake checks the words for what fits the schema and
// still cannot be decoded.
func TestDecodeSaysWhatTypesTake(t *testing.T) {
	t.Parallel()
	type args struct {
		Addr    *netip.Addr     `json:"addr"`
		Prefix  *netip.Prefix   `json:"prefix"`
		Port    *netip.AddrPort `json:"port"`
		IP      *net.IP         `json:"ip"`
		Float   *big.Float      `json:"float"`
		Rat     *big.Rat        `json:"rat"`
		Quoted  *int8           `json:"quoted,string"`
		Shouted *chatty         `json:"chatty"`
	}
	d := decoderOf[args](t)
	for arguments, want := range map[string]string{
		`{"addr":"x"}`:             `addr: expected an IP address such as 192.0.2.1, got "x"`,
		`{"prefix":"192.0.2.1"}`:   `prefix: expected a network such as 192.0.2.0/24, got "192.0.2.1"`,
		`{"port":"192.0.2.1"}`:     `port: expected an address with a port such as 192.0.2.1:80, got "192.0.2.1"`,
		`{"ip":"1.2.3"}`:           `ip: expected an IP address such as 192.0.2.1, got "1.2.3"`,
		`{"float":"x"}`:            `float: expected a number in a string, such as "1.5", got "x"`,
		`{"rat":"1/0"}`:            `rat: expected a number or fraction in a string, such as "3/4", got "1/0"`,
		`{"quoted":"300"}`:         `quoted: expected integer from -128 to 127 in a string, got "300"`,
		`{"chatty":"not a level"}`: `chatty: not accepted (not a level), got "not a level"`,
	} {
		err := d.Decode([]byte(arguments), new(args))
		require.Equal(t, want, requireArgumentError(t, err, arguments).Error())
	}
}

// chatty takes nothing and answers with the text itself.
type chatty struct{}

func (*chatty) UnmarshalText(text []byte) error { return errors.New(string(text)) }

// TestDecodeInLinearTime has long arguments that cost most for their size.
func TestDecodeInLinearTime(t *testing.T) {
	t.Parallel()
	enum := make([]string, 1000)
	for i := range enum {
		enum[i] = fmt.Sprintf("enum=%d.5", i)
	}
	wide := make([]reflect.StructField, 30)
	for i := range wide {
		wide[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: of[*uint64]()}
	}
	typ := reflect.StructOf([]reflect.StructField{
		{Name: "Text", Type: of[*string]()},
		{Name: "Pattern", Type: of[*string](), Tag: `jsonschema:"pattern=^(a+)+$"`},
		{Name: "Quarter", Type: of[*float64](), Tag: `jsonschema:"multipleOf=0.25"`},
		{Name: "Seven", Type: of[*int](), Tag: `jsonschema:"multipleOf=7"`},
		{Name: "Enum", Type: of[[]float64](), Tag: reflect.StructTag(`json:",omitempty" jsonschema:"` + strings.Join(enum, ",") + `"`)},
		{Name: "Wide", Type: reflect.SliceOf(reflect.StructOf(wide)), Tag: `json:",omitempty"`},
		{Name: "Shapes", Type: of[[]Shape](), Tag: `json:",omitempty"`},
	})
	schema, err := strict.Schema(typ)
	require.NoError(t, err)
	d, err := strict.Compile(schema)
	require.NoError(t, err)
	const size = 1 << 19
	list := func(s string) string { return strings.TrimSuffix(strings.Repeat(s, size/len(s)), ",") }
	var members strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&members, `"k%d":1,`, i)
	}
	for _, c := range []struct{ name, args string }{
		{"open", list(`{"Text":`)},
		{"nested", strings.Repeat(`{"Text":`, size/9) + "1" + strings.Repeat("}", size/9)},
		{"string", `{"Text":"` + list("x") + `"}`},
		{"escapes", `{"Text":"` + list(`\u00e9`) + `"}`},
		{"pattern", `{"Pattern":"` + list("a") + `!"}`},
		{"members", `{` + strings.TrimSuffix(members.String(), ",") + `}`},
		{"duplicates", `{` + list(`"Text":"",`) + `}`},
		{"digits", `{"Seven":` + list("1") + `}`},
		{"fraction", `{"Quarter":0.` + list("1") + `}`},
		{"digits_and_fraction", `{"Quarter":` + list("1") + `.25}`},
		{"exponent", `{"Quarter":1e` + list("9") + `}`},
		{"enum", `{"Enum":[` + list("999.50,") + `]}`},
		{"overflows", `{"Wide":[` + list(`{"F29":99999999999999999999},`) + `]}`},
		{"union", `{"Shapes":[` + list(`{"kind":"x"},`) + `]}`},
	} {
		start := time.Now()
		if err := d.Decode([]byte(c.args), reflect.New(typ).Interface()); err != nil {
			requireArgumentError(t, err, c.name)
		}
		require.Less(t, time.Since(start), 5*time.Second, c.name) // it takes milliseconds
	}
}

// TestDecodeIsThatOfJSON decodes into types that the schema was not made of, with
// or without a value in them, as a schema that was written by hand may ask for.
func TestDecodeIsThatOfJSON(t *testing.T) {
	t.Parallel()
	filled := func() any {
		n, s := 7, "old"
		return &struct {
			A []string
			P *int
			S *string
		}{A: []string{"x", "y", "z"}, P: &n, S: &s}
	}
	for _, c := range []struct {
		name, schema, args string
		into               func() any
		reason             string
	}{
		{"case", property(`{"type":"integer"}`), `{"a":1}`, func() any { return new(struct{ A int }) }, "encoding/json takes another letter case for a field's name"},
		{"no_field", property(`{"type":"array","items":{"type":"string"}}`), `{"a":["x"]}`, func() any { return new(struct{ B int }) }, "and passes over what has no field"},
		{"any", property(`{"type":"array","items":{"type":"number"}}`), `{"a":[1,2.5]}`, func() any { return new(any) }, "an any takes anything"},
		{"any_field", property(`{"type":"string"}`), `{"a":"x"}`, func() any {
			return new(struct {
				A any `json:"a"`
			})
		}, "also within a struct"},
		{"map", property(`{"type":"string"}`), `{"a":"\u00e9"}`, func() any { return new(map[string]string) }, "a map takes any key"},
		{"longer", property(`{"type":"array","items":{"type":"integer"}}`), `{"a":[1,2,3]}`, func() any {
			return new(struct {
				A [2]int `json:"a"`
			})
		}, "what does not go into an array is dropped"},
		{"shorter", property(`{"type":"array","items":{"type":"integer"}}`), `{"a":[1]}`, func() any {
			return new(struct {
				A [2]int `json:"a"`
			})
		}, "and the rest of it is zero"},
		{"float", property(`{"type":"number"}`), `{"a":1.5}`, func() any {
			return new(struct {
				A int `json:"a"`
			})
		}, "an int takes no fraction"},
		{"text", property(`{"type":"number"}`), `{"a":1}`, func() any {
			return new(struct {
				A string `json:"a"`
			})
		}, "a string takes no number"},
		{"bool", property(`{"type":"boolean"}`), `{"a":true}`, func() any {
			return new(struct {
				A int `json:"a"`
			})
		}, "an int is no bool"},
		{"quoted_empty", property(`{"type":"string"}`), `{"a":""}`, func() any {
			return new(struct {
				A int `json:"a,string"`
			})
		}, "an empty string is no number"},
		{"quoted_two", property(`{"type":"string"}`), `{"a":"1 2"}`, func() any {
			return new(struct {
				A int `json:"a,string"`
			})
		}, "nor are two of them"},
		{"number_text", property(`{"type":"string"}`), `{"a":"1"}`, func() any {
			return new(struct {
				A json.Number `json:"a"`
			})
		}, "a json.Number takes a number in a string"},
		{"hidden_pointer", property(`{"type":"integer"}`), `{"a":1}`, func() any {
			return new(struct {
				*hiddenFields
			})
		}, "an embedded pointer to an unexported struct cannot be set"},
		{"filled", property(`{"type":"array","items":{"type":"string"}}`), `{"a":["n"]}`, filled, "what is there and is not in the arguments stays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, err := strict.Compile([]byte(c.schema))
			require.NoError(t, err)
			want, got := c.into(), c.into()
			wantErr := json.Unmarshal([]byte(c.args), want)
			err = d.Decode([]byte(c.args), got)
			if wantErr != nil {
				requireArgumentError(t, err, c.args)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, got, c.reason)
		})
	}
}

type hiddenFields struct {
	A int `json:"a"`
}

// BenchmarkDecode decodes arguments and has encoding/json decode the same, in
// turn, and reports the ratios of their CPU time and allocations. What types that
// decode themselves take is mostly theirs.
func BenchmarkDecode(b *testing.B) {
	benchmarkDecode[order](b, "plain", withItems(goodItem+","+goodItem))
	benchmarkDecode[struct {
		Title string `json:"title"`
		Due   *time.Time
		From  netip.Addr
		Parts []struct {
			At   time.Time `json:"at"`
			Data []byte    `json:"data"`
			Map  Words     `json:"map"`
		} `json:"parts"`
	}](b, "methods", `{"title":"a \"b\"","Due":"2026-01-02T03:04:05Z","From":"192.0.2.1","parts":[`+
		`{"at":"2026-01-02T03:04:05Z","data":"AAEC","map":"a b"},{"at":"2026-01-02T03:04:05Z","data":"AAEC","map":"a b"}]}`)
	var long strings.Builder
	for range 100 {
		long.WriteString(`{\"path\": \"a/b.go\", \"größe\": 3}\n`)
	}
	benchmarkDecode[struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}](b, "long text", `{"path":"a/b.json","text":"`+long.String()+`"}`)
}

// Words is text that takes itself apart.
type Words []string

func (w *Words) UnmarshalText(text []byte) error {
	*w = strings.Fields(string(text))
	return nil
}

func benchmarkDecode[T any](b *testing.B, name, arguments string) {
	d, args := decoderOf[T](b), []byte(arguments)
	ours := func() error { return d.Decode(args, new(T)) }
	theirs := func() error { return json.Unmarshal(args, new(T)) }
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := ours(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/ratio", func(b *testing.B) {
		var took [2]time.Duration
		var allocs [2]uint64
		var m runtime.MemStats
		for b.Loop() {
			for i, f := range []func() error{ours, theirs} {
				runtime.ReadMemStats(&m)
				before, start := m.Mallocs, cputime.Used()
				for range 200 {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				took[i] += cputime.Used() - start
				runtime.ReadMemStats(&m)
				allocs[i] += m.Mallocs - before
			}
		}
		b.ReportMetric(float64(took[0])/float64(took[1]), "time/encoding-json")
		b.ReportMetric(float64(allocs[0])/float64(allocs[1]), "allocs/encoding-json")
		b.ReportMetric(0, "ns/op") // of 400 calls of both
	})
}

func BenchmarkSchema(b *testing.B) {
	b.ReportAllocs()
	start := cputime.Used()
	for b.Loop() {
		if _, err := strict.Schema(of[order]()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cputime.Used()-start)/1e3/float64(b.N), "CPU-µs/schema")
}
