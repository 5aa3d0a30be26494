package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

type tree struct {
	Size int              `json:"size"`
	Kids fnloop.Map[tree] `json:"kids"`
}

func TestMap(t *testing.T) {
	t.Parallel()
	type args struct {
		Set   fnloop.Map[string]                   `json:"set" jsonschema:"description=Headers."`
		Limit fnloop.Map[int8]                     `json:"limit,omitempty"`
		Deep  fnloop.Map[[]fnloop.Map[*bool]]      `json:"deep,omitempty"`
		Any   fnloop.Map[fnloop.JSON]              `json:"any,omitempty"`
		Root  *fnloop.Map[tree]                    `json:"root"`
		Two   map[string]int                       `json:"-"`
		List  []fnloop.Map[struct{ A, B float64 }] `json:"list,omitempty"`
	}
	var got args
	tool, err := fnloop.NewTool("f", "", func(_ context.Context, in args) (string, error) {
		got = in
		return "", nil
	})
	require.NoError(t, err)
	require.NoError(t, fnloop.CheckStrict(tool.Parameters))
	require.Contains(t, string(tool.Parameters), `"description":"Headers."`)
	yes := true
	for _, c := range []struct {
		name, args string
		want       args
		bad        string // what the model reads
	}{
		{name: "empty", args: `{"set":[]}`, want: args{Set: fnloop.Map[string]{}}},
		{name: "pairs", args: `{"set":[{"key":"b","value":"1"},{"key":"","value":"2"}]}`, want: args{Set: fnloop.Map[string]{"b": "1", "": "2"}}},
		{name: "null", args: `{"set":[],"limit":null}`, want: args{Set: fnloop.Map[string]{}}},
		{name: "nested", args: `{"set":[],"deep":[{"key":"k","value":[[{"key":"x","value":null},{"key":"y","value":true}]]}]}`,
			want: args{Set: fnloop.Map[string]{}, Deep: fnloop.Map[[]fnloop.Map[*bool]]{"k": {{"x": nil, "y": &yes}}}}},
		{name: "any", args: `{"set":[],"any":[{"key":"k","value":"[1, {\"a\":null}]"}]}`, want: args{Set: fnloop.Map[string]{}, Any: fnloop.Map[fnloop.JSON]{"k": fnloop.JSON(`[1, {"a":null}]`)}}},
		{name: "recursive", args: `{"set":[],"root":[{"key":"a","value":{"size":1,"kids":[{"key":"b","value":{"size":2,"kids":[]}}]}}]}`,
			want: args{Set: fnloop.Map[string]{}, Root: &fnloop.Map[tree]{"a": {Size: 1, Kids: fnloop.Map[tree]{"b": {Size: 2, Kids: fnloop.Map[tree]{}}}}}}},
		{name: "twice", args: `{"set":[{"key":"b","value":"1"},{"key":"b","value":"2"}]}`, bad: `set: not accepted (the key "b" occurs twice), got array`},
		{name: "object", args: `{"set":{"b":"1"}}`, bad: `set: expected array, got object`},
		{name: "no map", args: `{"set":null}`, bad: `set: expected array, got null`},
		{name: "value", args: `{"set":[{"key":"b","value":1}]}`, bad: `set[0].value: expected string, got number 1`},
		{name: "key", args: `{"set":[{"value":"1"}]}`, bad: `set[0].key: missing (expected string)`},
		{name: "bound", args: `{"set":[],"limit":[{"key":"a","value":1},{"key":"b","value":300}]}`, bad: `limit[1].value: expected integer from -128 to 127, got 300`},
		{name: "inner text", args: `{"set":[],"any":[{"key":"k","value":"{"}]}`, bad: `any[0].value: not accepted (the string does not hold JSON: the text ends too early at byte 1), got "{"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got = args{}
			_, err := tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(c.args)})
			if c.bad != "" {
				require.EqualError(t, err, c.bad)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			written, err := json.Marshal(got)
			require.NoError(t, err)
			_, err = tool.Handle(t.Context(), fnloop.Call{Arguments: written})
			require.NoError(t, err, "what a Map writes it reads: %s", written)
			require.Equal(t, c.want, got)
		})
	}
}

func TestMapRoot(t *testing.T) {
	t.Parallel()
	_, err := fnloop.SchemaFor[fnloop.Map[int]]()
	e, ok := errors.AsType[*fnloop.SchemaError](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, e.Reason, "JSON object")
}

func TestMapMarshalsInOrder(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(fnloop.Map[int]{"b": 2, "a": 1, "c": 3})
	require.NoError(t, err)
	require.JSONEq(t, `[{"key":"a","value":1},{"key":"b","value":2},{"key":"c","value":3}]`, string(b))
	b, err = json.Marshal(fnloop.Map[int](nil))
	require.NoError(t, err)
	require.Equal(t, "[]", string(b))
}

func TestJSON(t *testing.T) {
	t.Parallel()
	type args struct {
		Value fnloop.JSON   `json:"value" jsonschema:"description=The new value."`
		More  []fnloop.JSON `json:"more,omitempty"`
		Maybe *fnloop.JSON  `json:"maybe,omitempty"`
	}
	var got args
	tool, err := fnloop.NewTool("f", "", func(_ context.Context, in args) (string, error) {
		got = in
		return "", nil
	})
	require.NoError(t, err)
	one, err := fnloop.SchemaFor[struct {
		Value fnloop.JSON `json:"value" jsonschema:"description=The new value."`
	}]()
	require.NoError(t, err)
	require.Contains(t, string(one), `"The new value. (JSON in a string)"`, "the field's own description keeps the form")
	for value, bad := range map[string]string{
		`1`: "", ` null `: "", `"x"`: "", `[{"a":[]},1e999]`: "", `{"a":{"b":"\u00e9"}}`: "",
		``: "ends too early", `{`: "ends too early", `{} {}`: "after the JSON value", `{'a':1}`: "double quotes", `NaN`: "no NaN",
		`{"a":1,"a":2}`: `the key "a" twice`, `"\ud800"`: "surrogate",
	} {
		quoted, err := json.Marshal(value)
		require.NoError(t, err)
		_, err = tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"value":` + string(quoted) + `,"more":["1"]}`)})
		if bad != "" {
			require.ErrorContains(t, err, "value: not accepted (the string", value)
			require.ErrorContains(t, err, bad, value)
			continue
		}
		require.NoError(t, err, value)
		require.Equal(t, fnloop.JSON(value), got.Value)
		require.True(t, json.Valid(got.Value))
	}
	_, err = tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"value":{"a":1}}`)})
	require.ErrorContains(t, err, "value: expected string, got object")
	b, err := json.Marshal(args{})
	require.NoError(t, err)
	require.JSONEq(t, `{"value":"null"}`, string(b))
}
