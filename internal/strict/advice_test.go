package strict_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// pasted returns the tag that an error says to write.
func pasted(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	_, advice, ok := strings.Cut(err.Error(), "; write ")
	require.True(t, ok, "no advice: %v", err)
	return advice
}

// TestTagAdviceWorks pastes the tag that each error says to write and looks at
// the schema that comes of it.
func TestTagAdviceWorks(t *testing.T) {
	t.Parallel()
	str, num, list := of[string](), of[int](), of[[]string]()
	for _, c := range []struct {
		tag    string
		typ    reflect.Type
		advice string // what the error says to write
		want   string // part of the schema then
	}{
		{`jsonschema:"minLength=3"`, str, `jsonschema:"pattern=^[\\s\\S]{3\\,}$"`, `"pattern":"^[\\s\\S]{3,}$"`},
		{`jsonschema:"maxLength=3,description=x"`, str, `jsonschema:"description=x,pattern=^[\\s\\S]{0\\,3}$"`, `"pattern":"^[\\s\\S]{0,3}$"`},
		{`jsonschema:"minLength=2,maxLength=1000"`, list, `jsonschema:"pattern=^[\\s\\S]{2\\,1000}$"`, `"pattern":"^[\\s\\S]{2,1000}$"`},
		{`jsonschema:"maxLength=1001"`, str, `jsonschema:"description=At most 1001 characters."`, `"description":"At most 1001 characters."`},
		{`jsonschema:"minLength=5000,description=A story."`, str, `jsonschema:"description=A story. At least 5000 characters."`, `A story. At least 5000 characters.`},
		{`jsonschema:"minLength=1,maxLength=9,pattern=^a"`, str, `jsonschema:"pattern=^a,description=1 to 9 characters."`, `"1 to 9 characters."`},
		{`jsonschema:"minLength=1,required" jsonschema_description:"One, two"`, of[*string](), `jsonschema:"required,pattern=^[\\s\\S]{1\\,}$"`, `"pattern"`},
		{`jsonschema:"uniqueItems=true,minItems=1"`, list, `jsonschema:"minItems=1,description=No item is there twice."`, `"minItems":1`},
		{`jsonschema:"const=a,description=d"`, str, `jsonschema:"enum=a,description=d"`, `"enum":["a"]`},
		{`jsonschema:"writeOnly=true,title=T"`, str, `jsonschema:"title=T"`, `"title":"T"`},
		{`jsonschema:"format=uri"`, str, `jsonschema:"description=Format: uri."`, `"Format: uri."`},
		{`jsonschema:"format=uri,description=Where to\\, please"`, str, `jsonschema:"description=Where to\\, please. Format: uri."`, `Where to, please. Format: uri.`},
		{`jsonschema:"pattern=^a{\\,3}$"`, str, `jsonschema:"pattern=^a{0\\,3}$"`, `"^a{0,3}$"`},
		{`jsonschema:"pattern=(?<year>[0-9]+)"`, str, `jsonschema:"pattern=(?P<year>[0-9]+)"`, `(?P<year>[0-9]+)`},

		// other spellings
		{`jsonschema:"the city"`, str, `jsonschema:"description=the city"`, `"description":"the city"`},
		{`jsonschema:"the city, as in \"Bonn\", not a code"`, str, `jsonschema:"description=the city\\, as in \"Bonn\"\\, not a code"`, `as in \"Bonn\", not a code`},
		{`jsonschema:"a = b, c"`, str, `jsonschema:"description=a = b\\, c"`, `"description":"a = b, c"`},
		{`jsonschema:"description=one, two, three,required"`, of[*string](), `jsonschema:"description=one\\, two\\, three,required"`, `"one, two, three"`},
		{`jsonschema:"required=true"`, of[*string](), `jsonschema:"required"`, `"type":"string"`},
		{`jsonschema:"required=false,description=d"`, str, `jsonschema:"nullable,description=d"`, `"null"`},
		{`jsonschema:"optional"`, num, `jsonschema:"nullable"`, `"null"`},
		{`jsonschema:"desc=d"`, num, `jsonschema:"description=d"`, `"description":"d"`},
		{`jsonschema:"min=1,max=5"`, num, `jsonschema:"minimum=1,maximum=5"`, `"maximum":5`},
		{`jsonschema:"required,"`, num, `jsonschema:"required"`, `"integer"`},

		// other libraries' tags
		{`doc:"d, e"`, str, `jsonschema:"description=d\\, e"`, `"description":"d, e"`},
		{`desc:"d" jsonschema:"minimum=1"`, num, `jsonschema:"minimum=1,description=d"`, `"minimum":1`},
		{`mcp:"the city"`, str, `jsonschema:"description=the city"`, `"the city"`},
		{`enum:"a, b,c"`, str, `jsonschema:"enum=a,enum=b,enum=c"`, `"enum":["a","b","c"]`},
		{`enum:"1|2"`, num, `jsonschema:"enum=1,enum=2"`, `"enum":[1,2]`},
		{`enums:"a,b"`, list, `jsonschema:"enum=a,enum=b"`, `"items":{"type":"string","enum":["a","b"]}`},
		{`enum:"[\"a\",\"b,c\"]"`, str, `jsonschema:"enum=a,enum=b\\,c"`, `"enum":["a","b,c"]`},
		{`minimum:"1" maximum:"9"`, num, `jsonschema:"minimum=1,maximum=9"`, `"maximum":9`},
		{`minLength:"1" maxLength:"9"`, str, `jsonschema:"pattern=^[\\s\\S]{1\\,9}$"`, `{1,9}`},
		{`pattern:"^a,b$"`, str, `jsonschema:"pattern=^a\\,b$"`, `"^a,b$"`},
		{`format:"uri"`, str, `jsonschema:"description=Format: uri."`, `Format: uri.`},
		{`format:"date"`, str, `jsonschema:"format=date"`, `"format":"date"`},
		{`minItems:"1"`, list, `jsonschema:"minItems=1"`, `"minItems":1`},
		{`title:"T"`, str, `jsonschema:"title=T"`, `"title":"T"`},
		{`required:"false" description:"d"`, str, `jsonschema:"description=d,nullable"`, `"null"`},
		{`required:"true"`, of[*string](), `jsonschema:"required"`, `"type":"string"`},
		{`nullable:"true"`, str, `jsonschema:"nullable"`, `"null"`},
	} {
		t.Run(c.tag, func(t *testing.T) {
			t.Parallel()
			_, err := strict.Schema(tagged(c.tag, c.typ))
			advice := pasted(t, err)
			if !strings.Contains(c.tag, "jsonschema_description") {
				require.Equal(t, c.advice, advice)
			}
			require.NotContains(t, advice, "`", "it stands between backquotes")
			schema, err := strict.Schema(tagged(advice, c.typ))
			require.NoError(t, err)
			require.Contains(t, string(schema), c.want)
		})
	}
}

// TestTagsOfOtherLibraries says which of them are honoured as they are.
func TestTagsOfOtherLibraries(t *testing.T) {
	t.Parallel()
	str := of[string]()
	for _, c := range []struct {
		tag  string
		typ  reflect.Type
		want string
	}{
		{`description:"One, two: three"`, str, `{"description":"One, two: three","type":"string"}`},
		{`description:"d" jsonschema:"enum=a"`, str, `{"description":"d","type":"string","enum":["a"]}`},
		{`description:"d" jsonschema_description:"d" jsonschema:"description=d"`, str, `{"description":"d","type":"string"}`},
		{`description:"d" doc:"e"`, str, `{"description":"d","type":"string"}`},
		{`enum:"a,b" jsonschema:"enum=a,enum=b"`, str, `{"type":"string","enum":["a","b"]}`},
		{`default:"5" description:"How many."`, of[int](), `{"description":"How many. (default: 5)","type":"integer"}`},
		{`example:"x, y"`, str, `{"description":"Example: x, y","type":"string"}`},
		{`required:"true"`, str, `{"type":"string"}`},
		{`required:"false"`, of[*string](), `{"type":["string","null"]}`},
		{`json:"f,omitempty" required:"false"`, str, `{"type":["string","null"]}`},
		{`minLength:"1" jsonschema:"pattern=^.+$"`, str, `{"type":"string","pattern":"^.+$"}`},
		{`validate:"required,oneof=a b" db:"f" yaml:"f" env:"F"`, str, `{"type":"string"}`},
	} {
		schema, err := strict.Schema(tagged(c.tag, c.typ))
		require.NoError(t, err, c.tag)
		var root struct{ Properties map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(schema, &root))
		for _, p := range root.Properties {
			require.Equal(t, c.want, string(p), c.tag)
		}
	}
	for tag, want := range map[string]string{
		`description:"a" jsonschema:"description=b"`: "description is given twice",
		`enum:"a,b"`:                   "would be lost", // for an object there is no tag to write
		`json:"f",description:"d"`:     "malformed",
		`json:"f" description: "d"`:    "malformed",
		"description:\"\xff\"":         "UTF-8",
		`jsonschema:"frobnicate=1"`:    `"frobnicate=1"`,
		`jsonschema:"minLength=three"`: "whole number",
	} {
		_, err := strict.Schema(tagged(tag, of[struct{ X int }]()))
		require.ErrorContains(t, err, want, tag)
		require.NotContains(t, err.Error(), "; write ", tag)
	}
}

// TestCheckAdviceWorks does what the errors about schemas by hand say.
func TestCheckAdviceWorks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, advice, better string }{
		{`{"type":"string","minLength":2}`, `"pattern":"^[\\s\\S]{2,}$"`, `{"type":"string","pattern":"^[\\s\\S]{2,}$"}`},
		{`{"type":"string","minLength":2,"maxLength":30}`, `"pattern":"^[\\s\\S]{2,30}$"`, `{"type":"string","pattern":"^[\\s\\S]{2,30}$"}`},
		{`{"type":"string","maxLength":3000}`, "say it in the description", `{"type":"string","description":"At most 3000 characters."}`},
		{`{"type":"string","maxLength":3,"pattern":"^a"}`, "say it in the description", `{"type":"string","pattern":"^a","description":"At most 3 characters."}`},
		{`{"type":"string","nullable":true}`, `add "null" to the types`, `{"type":["string","null"]}`},
		{`{"type":["array","null"],"items":{"type":"string"}}`, `use anyOf with the array and {"type":"null"}`, `{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}`},
		{`{"$ref":"#","description":"d"}`, `wrap it as {"description": ..., "anyOf": [{"$ref": ...}]}`, `{"description":"d","anyOf":[{"$ref":"#"},{"type":"null"}]}`},
		{`{"type":"string","default":"x"}`, "name the default in the description", `{"type":"string","description":"x by default"}`},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, "use anyOf with branches that exclude each other", `{"anyOf":[{"type":"string"},{"type":"null"}]}`},
		{`{"type":"string","pattern":"\\bx"}`, `write (^|\W) or (\W|$)`, `{"type":"string","pattern":"(^|\\W)x"}`},
		{`{"type":"string","pattern":"x{,3}"}`, "write {0,n}", `{"type":"string","pattern":"x{0,3}"}`},
		{`{"type":"string","pattern":"(?<n>x)"}`, "write (?P<name>...)", `{"type":"string","pattern":"(?P<n>x)"}`},
	} {
		err := strict.Check([]byte(property(c.schema)))
		require.ErrorContains(t, err, c.advice, c.schema)
		require.NoError(t, strict.Check([]byte(property(c.better))), c.better)
	}
}

// TestPatternsReadAsPythonDoes compares the classes with what Python's re takes.
func TestPatternsReadAsPythonDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, good, bad string // strings between bars
	}{
		{`^\w+$`, "Größe|naïve_1|日本|x²", "a b|a-b|é!|"},
		{`^\W+$`, " -!|€", "ä|_|1"},
		{`^\d+$`, "12|१२३", "a|½"},
		{`^\D+$`, "ab|½ä", "1|१"},
		{`^a\sb$`, "a b|a\u00a0b|a\u2003b|a\u0085b|a\x1fb", "ab|a\u200bb"},
		{`^\S+$`, "ä€\u200b", "a b|a\u00a0b"},
		{`^[\w.-]+$`, "Größe.x-1", "a b|ä@"},
		{`^[\w-.]+$`, "Größe.x-1", "a b"},
		{`^[^\w]+$`, "!?", "ä"},
		{`^[\W\d]+$`, "!1", "ä"},
		{`^[\S]+$`, "ä\u200b", "\u00a0"},
		{`^[^\S ]+$`, "\t\u00a0", " |a"},
		{`^[]\w]+$`, "]ä", "["},
		{`^[^]\s]+$`, "ä", "]|\u00a0"},
		{`^\\w$`, `\w`, "ä"},
		{`^(?i)größe$`, "", ""},
		{`(?i)^größe$`, "GRÖSSE|grÖße", ""},
	} {
		schema := property(`{"type":"string","pattern":` + strconv.Quote(c.pattern) + `}`)
		d, err := strict.Compile([]byte(schema))
		if c.good == "" {
			require.Error(t, err, c.pattern)
			continue
		}
		require.NoError(t, err, c.pattern)
		decode := func(s string) error {
			b, err := json.Marshal(map[string]string{"a": s})
			require.NoError(t, err)
			return d.Decode(b, nil)
		}
		for s := range strings.SplitSeq(c.good, "|") {
			if strings.Contains(c.pattern, "größe") && s == "GRÖSSE" {
				continue // no engine folds ß to SS
			}
			require.NoError(t, decode(s), "%s %q", c.pattern, s)
		}
		for s := range strings.SplitSeq(c.bad, "|") {
			if c.bad == "" {
				break
			}
			err := decode(s)
			require.ErrorContains(t, err, "that matches "+c.pattern, "%q: the model reads the pattern that was sent", s)
		}
	}
}

// Line has an address in four places, and three enums of one type.
type (
	Address struct {
		Street  string `json:"street" description:"Street and number."`
		City    string `json:"city"`
		Country string `json:"country" jsonschema:"enum=de,enum=at,enum=ch"`
	}
	Small struct{ X bool }
)

// TestSharesWhatIsShorter holds the form that is chosen against both forms.
func TestSharesWhatIsShorter(t *testing.T) {
	t.Parallel()
	schema := func(typ reflect.Type) string {
		s, err := strict.Schema(typ)
		require.NoError(t, err)
		return string(s)
	}
	type four struct {
		Home, Work Address
		Ship       *Address  `description:"Where to."`
		Past       []Address `json:"past,omitempty"`
	}
	s := schema(of[four]())
	require.Equal(t, 4, strings.Count(s, `"#/$defs/Address"`))
	require.Equal(t, 1, strings.Count(s, "Street and number."))
	require.Less(t, len(s), 900)

	require.NotContains(t, schema(of[struct{ A Address }]()), "$defs", "one use")
	require.NotContains(t, schema(of[struct{ A, B struct{ X bool } }]()), "$defs", "a type without a name")
	require.NotContains(t, schema(of[struct{ A, B []string }]()), "$defs")
	require.Contains(t, schema(of[struct{ A, B, C, D Small }]()), "#/$defs/Small")
	require.NotContains(t, schema(of[struct{ A, B Status }]()), "$defs", "two short enums are shorter where they are used")
	many := schema(of[struct{ A, B, C ManyValues }]())
	require.Equal(t, 1, strings.Count(many, `"v239"`))
	require.Equal(t, 3, strings.Count(many, `"#/$defs/ManyValues"`))

	// A tag that narrows an enum is about that field alone.
	narrow := schema(of[struct {
		A, B ManyValues
		C    ManyValues   `jsonschema:"enum=v1"`
		D    []ManyValues `jsonschema:"enum=v2"`
	}]())
	require.Equal(t, 1, strings.Count(narrow, `"v239"`))
	require.Contains(t, narrow, `"C":{"type":"string","enum":["v1"]}`)
	require.Contains(t, narrow, `"items":{"type":"string","enum":["v2"]}`)
}

// TestLimitNamesTheField looks for the field in the errors about limits.
func TestLimitNamesTheField(t *testing.T) {
	t.Parallel()
	values := func(from, n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf("enum=v%d", from+i))
		}
		return `jsonschema:"` + strings.Join(parts, ",") + `"`
	}
	var fields []reflect.StructField
	for i := range 5 {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: of[string](), Tag: reflect.StructTag(values(i*1000, 240))})
	}
	_, err := strict.Schema(reflect.StructOf(fields))
	require.ErrorContains(t, err, "struct.F4: string:")
	require.ErrorContains(t, err, "more than 1000 enum values")
}
