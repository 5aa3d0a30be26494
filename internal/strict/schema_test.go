package strict_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	judge "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const goldens = "../../fixtures/schemas"

// independent compiles a schema with a validator that shares no code with this
// package.
func independent(t testing.TB, schema []byte) *judge.Schema {
	t.Helper()
	doc, err := judge.UnmarshalJSON(bytes.NewReader(schema))
	require.NoError(t, err)
	c := judge.NewCompiler()
	c.DefaultDraft(judge.Draft2020)
	c.AssertFormat()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err, "%s", schema)
	return s
}

func TestSchema(t *testing.T) {
	t.Parallel()
	for _, c := range accepted {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema, err := strict.Schema(c.typ)
			require.NoError(t, err, c.reason)
			again, err := strict.Schema(c.typ)
			require.NoError(t, err)
			require.Equal(t, string(schema), string(again), "the schema must not change from call to call")
			require.NoError(t, strict.Check(schema), c.reason)
			require.NotContains(t, string(schema), `"$schema"`)
			require.NotContains(t, string(schema), `"$id"`)
			independent(t, schema)
			golden(t, c.name, schema)
		})
	}
}

// golden compares a schema with the one on file.
func golden(t *testing.T, name string, schema []byte) {
	t.Helper()
	if len(schema) > 1<<16 {
		return // too large to read, and judged by the rules anyway
	}
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, schema, "", "  "))
	b.WriteByte('\n')
	path := filepath.Join(goldens, name+".json")
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test -update to make it")
	require.Equal(t, string(want), b.String())
}

func TestSchemaGoldensAreUsed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(goldens, "*.json"))
	require.NoError(t, err)
	known := map[string]bool{}
	for _, c := range accepted {
		known[c.name] = true
	}
	for _, f := range files {
		require.True(t, known[strings.TrimSuffix(filepath.Base(f), ".json")], "%s belongs to no case", f)
	}
}

func TestSchemaDecodes(t *testing.T) {
	t.Parallel()
	for _, c := range accepted {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema, d, err := strict.Typed(c.typ)
			require.NoError(t, err)
			again, err := strict.Compile(schema)
			require.NoError(t, err)
			for _, args := range c.good {
				require.NoError(t, again.Decode([]byte(args), nil), "the schema itself must say the same")
				into := reflect.New(c.typ)
				require.NoError(t, d.Decode([]byte(args), into.Interface()), args)
				if strings.TrimSpace(args) != "" {
					want := reflect.New(c.typ)
					require.NoError(t, json.Unmarshal([]byte(args), want.Interface()))
					require.Equal(t, want.Interface(), into.Interface(), "Decode and encoding/json must agree")
				}
			}
			for _, args := range c.bad {
				err := d.Decode([]byte(args), reflect.New(c.typ).Interface())
				e := requireArgumentError(t, err, args)
				require.EqualError(t, again.Decode([]byte(args), reflect.New(c.typ).Interface()), e.Error(), "the schema itself must say the same")
			}
		})
	}
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema, err := strict.Schema(c.typ)
			require.Error(t, err, "%s", schema)
			e, ok := errors.AsType[*strict.TypeError](err)
			require.True(t, ok, "%T", err)
			require.Contains(t, e.Error(), c.reason)
			require.Contains(t, e.Path, c.path)
			require.NotEmpty(t, e.Reason)
			require.NotNil(t, e.Type)
		})
	}
}

func TestSchemaOfNil(t *testing.T) {
	_, err := strict.Schema(nil)
	require.Error(t, err)
}

func TestSchemaErrorNamesThePath(t *testing.T) {
	type Order struct {
		Items []struct {
			Meta map[string]any `json:"meta"`
		} `json:"items"`
	}
	_, err := strict.Schema(of[Order]())
	e, ok := errors.AsType[*strict.TypeError](err)
	require.True(t, ok)
	require.Equal(t, "Order.Items[].Meta", e.Path)
	require.Equal(t, "items[].meta", e.JSON)
	require.Equal(t, of[map[string]any](), e.Type)
	require.True(t, strings.HasPrefix(e.Error(), "Order.Items[].Meta (items[].meta in JSON): map[string]any: "), e.Error())
}

// TestSchemaIsConcurrent finds writes to a schema that a method returns from a
// variable, under -race.
func TestSchemaIsConcurrent(t *testing.T) {
	before, err := json.Marshal(percentSchema)
	require.NoError(t, err)
	typ := of[struct {
		A Percent `jsonschema:"description=one"`
		B Percent `jsonschema:"description=two,minimum=5"`
	}]()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			schema, err := strict.Schema(typ)
			if err != nil || !bytes.Contains(schema, []byte("two")) || !bytes.Contains(schema, []byte("one")) {
				t.Errorf("Schema() = %s, %v", schema, err)
			}
		})
	}
	wg.Wait()
	after, err := json.Marshal(percentSchema)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// TestMarshalledValuesFit holds what encoding/json writes for a value against
// the schema of its type.
func TestMarshalledValuesFit(t *testing.T) {
	t.Parallel()
	three := 3
	tree := Tree{Value: 1, Children: []Tree{{Value: 2, Children: []Tree{}}}, Parent: &Tree{Children: []Tree{}}}
	for _, v := range []any{
		Outer{Base: Base{ID: "x"}, Label: 1},
		Before{Label: 1},
		Promoting{},
		TagWins{},
		Deep{},
		tree,
		Forest{Oak: tree, More: []Tree{tree}},
		Expr{Terms: []Term{{Atom: 1, Sub: &Expr{Terms: []Term{}}}}},
		List[*int]{Head: &three, Tail: &List[*int]{}},
		Pair[Level, [2]bool]{First: "x"},
		struct{ C []Color }{[]Color{3, 5}},
		struct{ B []byte }{[]byte("hello")},
		struct {
			N int `json:",string"`
			F float64
		}{7, 1e300},
		struct{ I8, J8 int8 }{-128, 127},
		Selfish{Name: "x"},
		Named{Middle: &Middle{}, Names: Names{}},
	} {
		t.Run(fmt.Sprintf("%T", v), func(t *testing.T) {
			schema, err := strict.Schema(reflect.TypeOf(v))
			require.NoError(t, err)
			data, err := json.Marshal(v)
			require.NoError(t, err)
			d, err := strict.Compile(schema)
			require.NoError(t, err)
			into := reflect.New(reflect.TypeOf(v))
			require.NoError(t, d.Decode(data, into.Interface()), "%s", data)
			require.Equal(t, v, into.Elem().Interface())
		})
	}
}

// TestSchemaNamesNanoseconds makes sure that no form of a time.Duration loses
// its unit.
func TestSchemaNamesNanoseconds(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"", `json:",string"`, `json:",omitempty"`, `jsonschema:"description=How long."`, `json:",string" jsonschema:"description=How long.,nullable"`} {
		schema, err := strict.Schema(tagged(tag, of[time.Duration]()))
		require.NoError(t, err)
		require.Contains(t, string(schema), "nanoseconds", tag)
	}
}
