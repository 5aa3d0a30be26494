package strict_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

type (
	oddColor          string
	oddLevel          int8
	oddTags           []string
	oddFlag           bool
	oddRatio          float32
	oddBytes          []byte
	oddByte           byte
	oddNamedBytes     []oddByte
	oddFn             func()
	oddMap            map[string]int
	oddAny            any
	oddIface          interface{ M() }
	oddPtr            *int
	oddStamp          time.Time
	oddInstant        = time.Time
	oddPair[A, B any] struct {
		First  A `json:"first"`
		Second B `json:"second"`
	}
	oddOpt[T any] struct {
		Value *T `json:"value"`
	}
	oddNode[T any] struct {
		Val  T           `json:"val"`
		Next *oddNode[T] `json:"next"`
	}
	oddTree struct {
		Name string    `json:"name"`
		Kids []oddTree `json:"kids"`
	}
	oddMutualA   struct{ B *oddMutualB }
	oddMutualB   struct{ A []oddMutualA }
	oddSelfEmbed struct {
		*oddSelfEmbed
		N int
	}
	oddMapRec   struct{ M map[string]*oddMapRec }
	oddSliceRec []oddSliceRec
	oddArrRec   struct{ K [2]*oddArrRec }
	oddReqRec   struct {
		Next *oddReqRec `jsonschema:"required"`
	}
	oddValRec struct {
		Kids *[]oddValRec `json:"kids" jsonschema:"description=Children."`
	}
	oddBaseID struct {
		ID   int `json:"id"`
		Name string
	}
	OddBase struct {
		ID   int `json:"id"`
		Name string
	}
	OddPtrBase struct {
		*OddBase
		Extra bool
	}
	OddTagged struct {
		OddBase `json:"base"`
		Extra   bool
	}
	OddOver struct {
		*OddBase
		Name int `json:"Name"`
	}
	OddOver2 struct {
		Name int
		OddBase
	}
	OddAmbA struct{ X int }
	OddAmbB struct{ X string }
	OddAmb  struct {
		OddAmbA
		OddAmbB
	}
	OddAmbTag struct {
		OddAmbA
		OddAmbC
	}
	OddAmbC struct {
		Y string `json:"X"`
	}
	oddHiddenPtr struct{ *oddBaseID }
	oddHidden    struct {
		oddBaseID
		Z int
	}
	OddGenEmb struct {
		oddPair[int, string]
		Z int
	}
	OddGenEmb2 struct {
		*oddOpt2[int]
		Z int
	}
	oddOpt2[T any] struct{ V T }
	OddOpt2[T any] struct{ V T }
	OddGenEmb3     struct {
		*OddOpt2[int]
		Z int
	}
	OddEmbIface struct {
		io.Reader
		Z int
	}
	OddEmbErr struct {
		error
		Z int
	}
	OddEmbScalar struct {
		OddStr
		Z int
	}
	OddStr     string
	OddEmbTime struct {
		time.Time
		Note string
	}
	OddEmbTime2   struct{ time.Time }
	OddEmbTimeTag struct {
		time.Time `json:"at"`
		Note      string
	}
	OddEmbAddr  struct{ netip.Addr }
	OddEmbAddr2 struct {
		netip.Addr
		Port int
	}
	OddEmbRaw struct {
		json.RawMessage
		A int
	}
)

func (oddColor) String() string { return "" }

// Text.
type oddTextVal struct{ s string }

func (z *oddTextVal) UnmarshalText(b []byte) error {
	if string(b) == "bad" {
		return fmt.Errorf("oddTextVal: %q is bad", b)
	}
	if string(b) == "panic" {
		panic("oddTextVal panic: nil")
	}
	if string(b) == "long" {
		return fmt.Errorf("%s", strings.Repeat("ä\n", 4000))
	}
	if string(b) == "utf8" {
		return fmt.Errorf("no \xff good")
	}
	if string(b) == "type" {
		return fmt.Errorf("strict_test.oddTextVal is wrong")
	}
	z.s = string(b)
	return nil
}

type oddTextMapVal map[string]string

func (z oddTextMapVal) UnmarshalText(b []byte) error { return nil }

type oddUUID [16]byte

func (z *oddUUID) UnmarshalText(b []byte) error {
	if len(b) != 36 {
		return fmt.Errorf("invalid UUID length: %d", len(b))
	}
	copy(z[:], b)
	return nil
}

type oddTextInt int

func (z *oddTextInt) UnmarshalText(b []byte) error {
	n, err := strconv.Atoi(string(b))
	*z = oddTextInt(n)
	return err
}

type oddJSON struct{ A int }

func (z *oddJSON) UnmarshalJSON(b []byte) error { return nil }

type oddMarsh struct{ A int }

func (z oddMarsh) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

type oddMarshText struct{ A int }

func (z oddMarshText) MarshalText() ([]byte, error) { return []byte(`x`), nil }

type oddJSONPanic struct{ A int }

func (z *oddJSONPanic) UnmarshalJSON(b []byte) error {
	panic("oddJSONPanic: reflect.Value of \n main.go:12")
}
func (oddJSONPanic) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer"} }

type oddCVal string

func (oddCVal) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{"a", "b"}, Description: "A or b."}
}

type oddCPtr string

func (*oddCPtr) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^a", Version: "x", ID: "y"}
}

type oddCNil string

func (*oddCNil) JSONSchema() *jsonschema.Schema { return nil }

type oddCTrue struct{ A int }

func (oddCTrue) JSONSchema() *jsonschema.Schema {
	p := jsonschema.NewProperties()
	p.Set("A", &jsonschema.Schema{Type: "integer"})
	return &jsonschema.Schema{Type: "object", Properties: p, AdditionalProperties: jsonschema.TrueSchema}
}

type oddCAny struct{ A int }

func (oddCAny) JSONSchema() *jsonschema.Schema { return jsonschema.TrueSchema }

type oddCEmpty struct{ A int }

func (oddCEmpty) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{} }

type oddCBig int64

func (oddCBig) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: "9007199254740993", Maximum: "9007199254740995"}
}

type oddCOneOf struct{ V any }

func (oddCOneOf) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}}}
}
func (*oddCOneOf) UnmarshalJSON(b []byte) error { return nil }

type oddCOneOver struct{ V any }

func (oddCOneOver) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "number"}, {Type: "integer"}}}
}
func (*oddCOneOver) UnmarshalJSON(b []byte) error { return nil }

type oddCNotNullOne struct{ V any }

func (oddCNotNullOne) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "null"}}, Title: "T"}
}
func (*oddCNotNullOne) UnmarshalJSON(b []byte) error { return nil }

type oddCRef struct{ A int }

func (oddCRef) JSONSchema() *jsonschema.Schema { return jsonschema.Reflect(struct{ A int }{}) }

type oddCDangle struct{ A int }

func (oddCDangle) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Ref: "#/$defs/Nope"} }

type oddCRemote struct{ A int }

func (oddCRemote) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "https://example.com/x.json"}
}

type oddCMinLen string

func (oddCMinLen) JSONSchema() *jsonschema.Schema {
	n := uint64(2)
	return &jsonschema.Schema{Type: "string", MinLength: &n}
}

type oddCURI string

func (oddCURI) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "uri"}
}

type oddCDefault string

func (oddCDefault) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Default: "x", Examples: []any{"y"}}
}

type oddCEnumNull string

func (oddCEnumNull) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Enum: []any{"x", "y", nil}}
}

type oddCWrong int

func (oddCWrong) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

type oddCPattern map[string]int

func (oddCPattern) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", PatternProperties: map[string]*jsonschema.Schema{"^a": {Type: "integer"}}}
}

type oddCMap map[string]int

func (oddCMap) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "integer"}}
}

type oddCEmptyObj struct{}

func (oddCEmptyObj) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: jsonschema.FalseSchema}
}

var oddShared = &jsonschema.Schema{Type: "string"}

type oddCShared string

func (oddCShared) JSONSchema() *jsonschema.Schema { return oddShared }

type oddCAllOf struct{ A int }

func (oddCAllOf) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AllOf: []*jsonschema.Schema{jsonschema.Reflect(struct{ A int }{}), {Type: "object"}}}
}

type oddCConst string

func (oddCConst) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Const: "v1"} }

type oddCNullable string

func (oddCNullable) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Extras: map[string]any{"nullable": true}}
}

type oddCRootRef struct {
	A    int
	Next *oddCRootRef
}

func (oddCRootRef) JSONSchema() *jsonschema.Schema {
	p := jsonschema.NewProperties()
	p.Set("A", &jsonschema.Schema{Type: "integer"})
	p.Set("Next", &jsonschema.Schema{Ref: "#"})
	return &jsonschema.Schema{Type: "object", Properties: p, Required: []string{"A"}}
}

type oddCValFormat string

func (oddCValFormat) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "email"}
}

func oddLocal1() reflect.Type {
	type Item struct {
		A    int
		Next *Item
	}
	return reflect.TypeFor[Item]()
}
func oddLocal2() reflect.Type {
	type Item struct {
		B    string
		Next []Item
	}
	return reflect.TypeFor[Item]()
}

type oddSmall struct{ n int }

func (z *oddSmall) UnmarshalText(b []byte) error { return nil }

type oddSmall2 struct{ n int }

func (z *oddSmall2) UnmarshalText(b []byte) error { z.n = len(b); return nil }

type oddSmallV struct{ n *int }

func (z oddSmallV) UnmarshalText(b []byte) error { return nil }

type oddSmallJ struct{ n int }

func (z *oddSmallJ) UnmarshalJSON(b []byte) error { return nil }

type (
	OddP1 struct {
		oddSmall
		Port int
	}
	OddP2 struct {
		oddSmall2
		Port int
	}
	OddP3 struct {
		oddSmallV
		Port int
	}
	OddP4 struct {
		*oddTextVal
		Port int
	}
	OddP5 struct {
		Port int
		oddSmall2
	}
	OddP6 struct{ OddP5 }
	OddP7 struct {
		oddSmallJ
		Port int
	}
	OddOwn1 struct{ Port int }
	OddOwn2 struct {
		oddSmall2
		Port int
	}
	OddIface struct {
		OddTextIface
		Port int
	}
	OddTextIface interface{ UnmarshalText([]byte) error }
)

func (z *OddOwn1) UnmarshalText(b []byte) error { return nil }
func (z OddOwn2) UnmarshalText(b []byte) error  { return nil }

type oddType struct {
	name string
	typ  reflect.Type
	want string // the schema of property A, "keys a,b" for all properties, or "!x|y" for an error that has x and y
}

func oddTypes() []oddType {
	str, num := of[string](), of[int]()
	c := func(name string, t reflect.Type, want string) oddType { return oddType{name, t, want} }
	f := func(tag string, t reflect.Type, want string) oddType {
		return oddType{t.String() + " " + tag, reflect.StructOf([]reflect.StructField{{Name: "A", Type: t, Tag: reflect.StructTag(tag)}}), want}
	}
	list := []oddType{
		f(``, str, `{"type":"string"}`),
		f(``, of[oddColor](), `{"type":"string"}`),
		f(``, of[oddFlag](), `{"type":"boolean"}`),
		f(``, of[oddRatio](), `{"type":"number"}`),
		f(``, of[oddLevel](), `{"type":"integer","minimum":-128,"maximum":127}`),
		f(``, of[int64](), `{"type":"integer"}`),
		f(``, of[uint64](), `{"type":"integer","minimum":0}`),
		f(``, of[uintptr](), `{"type":"integer","minimum":0}`),
		f(``, of[rune](), `{"type":"integer","minimum":-2147483648,"maximum":2147483647}`),
		f(``, of[time.Month](), `{"type":"integer"}`),
		f(``, of[time.Weekday](), `{"type":"integer"}`),
		f(``, of[time.Duration](), `{"type":"integer"}`),
		f(``, of[time.Time](), `{"type":"string","format":"date-time"}`),
		f(``, of[oddInstant](), `{"type":"string","format":"date-time"}`),
		f(``, of[*time.Time](), `{"anyOf":[{"type":"string","format":"date-time"},{"type":"null"}]}`),
		f(`json:",omitzero"`, of[time.Time](), `{"anyOf":[{"type":"string","format":"date-time"},{"type":"null"}]}`),
		f(``, of[oddStamp](), `!A|oddStamp`),
		f(``, of[[]time.Time](), `{"type":"array","items":{"type":"string","format":"date-time"}}`),
		f(``, of[netip.Addr](), `{"type":"string"}`),
		f(``, of[netip.Prefix](), `{"type":"string"}`),
		f(``, of[*netip.AddrPort](), `{"type":["string","null"]}`),
		f(``, of[net.IP](), `{"type":"string"}`),
		f(``, of[[]net.IP](), `{"type":"array","items":{"type":"string"}}`),
		f(``, of[net.HardwareAddr](), `{"type":"string"}`),
		f(``, of[url.URL](), `!A|url.URL`),
		f(``, of[*url.URL](), `!A|url.URL`),
		f(``, of[url.Values](), `!A|url.Values|map`),
		f(``, of[big.Int](), `!A|big.Int|UnmarshalJSON`),
		f(``, of[*big.Int](), `!A|big.Int|UnmarshalJSON`),
		f(``, of[big.Float](), `{"type":"string"}`),
		f(``, of[*big.Rat](), `{"type":["string","null"]}`),
		f(``, of[json.Number](), `{"type":"number"}`),
		f(``, of[json.RawMessage](), `!A|json.RawMessage`),
		f(``, of[*json.RawMessage](), `!A|json.RawMessage`),
		f(``, of[[]byte](), `{"type":"string"}`),
		f(``, of[oddBytes](), `{"type":"string"}`),
		f(``, of[oddNamedBytes](), `{"type":"string"}`),
		f(``, of[*[]byte](), `{"type":["string","null"]}`),
		f(``, of[[][]byte](), `{"type":"array","items":{"type":"string"}}`),
		f(``, of[[4]byte](), `{"type":"array","items":{"type":"integer","minimum":0,"maximum":255},"minItems":4,"maxItems":4}`),
		f(``, of[[0]string](), `{"type":"array","items":{"type":"string"},"minItems":0,"maxItems":0}`),
		f(``, of[[2][3]bool](), `{"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":3,"maxItems":3},"minItems":2,"maxItems":2}`),
		f(``, of[[][]string](), `{"type":"array","items":{"type":"array","items":{"type":"string"}}}`),
		f(``, of[[]*string](), `{"type":"array","items":{"type":"string"}}`),
		f(``, of[**string](), `{"type":["string","null"]}`),
		f(``, of[***[]**string](), `{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}`),
		f(``, of[oddPtr](), `{"type":["integer","null"]}`),
		f(``, of[oddTags](), `{"type":"array","items":{"type":"string"}}`),
		f(``, of[sync.Mutex](), `!A|sync.Mutex`),
		f(``, of[struct{ Mu sync.Mutex }](), `!A.Mu|sync.Mutex`),
		f(``, of[atomic.Int64](), `!A|atomic.Int64`),
		f(``, of[atomic.Value](), `!A|atomic.Value`),
		f(``, of[sql.NullString](), `{"type":"object","properties":{"String":{"type":"string"},"Valid":{"type":"boolean"}},"required":["String","Valid"],"additionalProperties":false}`),
		f(``, of[sql.Null[int64]](), `{"type":"object","properties":{"V":{"type":"integer"},"Valid":{"type":"boolean"}},"required":["V","Valid"],"additionalProperties":false}`),
		f(``, of[error](), `!A|error|interface`),
		f(``, of[reflect.Type](), `!A|reflect.Type|interface`),
		f(``, of[context.Context](), `!A|context.Context|interface`),
		f(``, of[any](), `!A|any|interface`),
		f(``, of[oddAny](), `!A|oddAny|interface`),
		f(``, of[oddIface](), `!A|oddIface|interface`),
		f(``, of[[]any](), `!A[]|interface`),
		f(``, of[*any](), `!A|interface`),
		f(``, of[map[string]int](), `!A|map[string]int|fnloop.Map[int]`),
		f(``, of[oddMap](), `!A|oddMap|fnloop.Map[int]`),
		f(``, of[map[oddTextInt]string](), `!A|map`),
		f(``, of[[]map[string]any](), `!A[]|map[string]any`),
		f(``, of[func()](), `!A|func()`),
		f(``, of[oddFn](), `!A|oddFn`),
		f(``, of[chan int](), `!A|chan int`),
		f(``, of[*chan int](), `!A|chan int`),
		f(``, of[complex64](), `!A|complex64`),
		f(``, of[[]complex128](), `!A[]|complex128`),
		f(``, of[unsafe.Pointer](), `!A|unsafe.Pointer`),
		f(`json:"-"`, of[func()](), `keys `),
		f(`jsonschema:"-"`, of[func()](), `keys `),
		f(``, of[slog.Level](), `!A|slog.Level`),
		f(``, of[struct{}](), `!A|struct`),
		f(``, of[[]struct{}](), `!A[]|struct`),
		f(``, of[oddTextVal](), `{"type":"string"}`),
		f(``, of[*oddTextVal](), `{"type":["string","null"]}`),
		f(``, of[oddTextMapVal](), `{"type":"string"}`),
		f(``, of[oddUUID](), `{"type":"string"}`),
		f(`jsonschema:"format=uuid"`, of[oddUUID](), `{"type":"string","format":"uuid"}`),
		f(``, of[[]oddUUID](), `{"type":"array","items":{"type":"string"}}`),
		f(``, of[oddTextInt](), `{"type":"string"}`),
		f(``, of[oddJSON](), `!A|oddJSON|JSONSchema`),
		f(``, of[*oddJSON](), `!A|oddJSON|JSONSchema`),
		f(``, of[oddMarsh](), `{"type":"object","properties":{"A":{"type":"integer"}},"required":["A"],"additionalProperties":false}`),
		f(``, of[oddMarshText](), `{"type":"object","properties":{"A":{"type":"integer"}},"required":["A"],"additionalProperties":false}`),
		// json options
		f(`json:",omitempty"`, str, `{"type":["string","null"]}`),
		f(`json:",omitempty"`, of[bool](), `{"type":["boolean","null"]}`),
		f(`json:",omitempty"`, of[float64](), `{"type":["number","null"]}`),
		f(`json:",omitempty"`, of[int8](), `{"anyOf":[{"type":"integer","minimum":-128,"maximum":127},{"type":"null"}]}`),
		f(`json:",omitempty"`, of[[]string](), `{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}`),
		f(`json:",omitempty"`, of[[]byte](), `{"type":["string","null"]}`),
		f(`json:",omitzero"`, of[[2]int](), `{"anyOf":[{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2},{"type":"null"}]}`),
		f(`json:",omitzero"`, of[OddBase](), `{"anyOf":[{"type":"object","properties":{"id":{"type":"integer"},"Name":{"type":"string"}},"required":["id","Name"],"additionalProperties":false},{"type":"null"}]}`),
		f(`json:",omitempty"`, of[*[]string](), `{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}`),
		f(`json:",omitempty"`, of[oddUUID](), `{"type":["string","null"]}`),
		f(`json:",string"`, of[int](), `{"type":"string","pattern":"^-?(0|[1-9][0-9]*)$"}`),
		f(`json:",string"`, of[*float64](), `{"anyOf":[{"type":"string","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?$"},{"type":"null"}]}`),
		f(`json:",string"`, of[bool](), `{"type":"string","enum":["true","false"]}`),
		f(`json:",string"`, str, `!A|string`),
		f(`json:",string"`, of[*string](), `!A|string`),
		f(`json:",string"`, of[[]int](), `{"type":"array","items":{"type":"integer"}}`),
		f(`json:",string"`, of[json.Number](), `!A`),
		f(`json:",string"`, of[time.Duration](), `{"type":"string","pattern":"^-?(0|[1-9][0-9]*)$"}`),
		f(`json:",inline"`, of[OddBase](), `{"type":"object","properties":{"id":{"type":"integer"},"Name":{"type":"string"}},"required":["id","Name"],"additionalProperties":false}`),
		f(`jsonschema:"nullable"`, of[oddLevel](), `{"anyOf":[{"type":"integer","minimum":-128,"maximum":127},{"type":"null"}]}`),
		f(`jsonschema:"nullable"`, of[OddBase](), `{"anyOf":[{"type":"object","properties":{"id":{"type":"integer"},"Name":{"type":"string"}},"required":["id","Name"],"additionalProperties":false},{"type":"null"}]}`),
		f(`jsonschema:"required"`, of[*string](), `{"type":"string"}`),
		f(`json:",omitempty" jsonschema:"required"`, of[*OddStr](), `{"type":"string"}`),
		f(`jsonschema:"required,nullable"`, str, `!A|required|nullable`),
		// tags
		f(`jsonschema:"enum=a,enum=b"`, of[oddColor](), `{"type":"string","enum":["a","b"]}`),
		f(`jsonschema:"enum=a,enum=b"`, of[*oddColor](), `{"anyOf":[{"type":"string","enum":["a","b"]},{"type":"null"}]}`),
		f(`jsonschema:"enum=a,enum=b"`, of[[]oddColor](), `{"type":"array","items":{"type":"string","enum":["a","b"]}}`),
		f(`jsonschema:"enum=a,enum=b"`, of[[]*oddColor](), `{"type":"array","items":{"type":"string","enum":["a","b"]}}`),
		f(`jsonschema:"enum=a,enum=b"`, of[*[]*oddColor](), `{"anyOf":[{"type":"array","items":{"type":"string","enum":["a","b"]}},{"type":"null"}]}`),
		f(`jsonschema:"enum=1,enum=2"`, of[oddLevel](), `{"type":"integer","enum":[1,2],"minimum":-128,"maximum":127}`),
		f(`jsonschema:"enum=1,enum=1.5"`, of[oddLevel](), `!A|1.5`),
		f(`jsonschema:"enum=1,enum=300"`, of[oddLevel](), `!A|300`),
		f(`jsonschema:"enum=0.5,enum=1"`, of[oddRatio](), `{"type":"number","enum":[0.5,1]}`),
		f(`jsonschema:"enum=true"`, of[oddFlag](), `{"type":"boolean","enum":[true]}`),
		f(`jsonschema:"enum=yes"`, of[oddFlag](), `!A|yes`),
		f(`jsonschema:"enum=a,enum=a"`, str, `!A|twice`),
		f(`jsonschema:"enum=x\\,y,enum=z"`, str, `{"type":"string","enum":["x,y","z"]}`),
		f(`jsonschema:"enum=é\"q\",enum=日本"`, str, `{"type":"string","enum":["é\"q\"","日本"]}`),
		f(`jsonschema:"enum=a"`, of[OddBase](), `!A|enum`),
		f(`jsonschema:"enum=a"`, of[[]OddBase](), `!A|enum`),
		f(`jsonschema:"minimum=1,maximum=10"`, of[int](), `{"type":"integer","minimum":1,"maximum":10}`),
		f(`jsonschema:"minimum=1,maximum=10"`, of[*int](), `{"anyOf":[{"type":"integer","minimum":1,"maximum":10},{"type":"null"}]}`),
		f(`jsonschema:"minimum=1,maximum=10,minItems=1,maxItems=3"`, of[[]int](), `{"type":"array","items":{"type":"integer","minimum":1,"maximum":10},"minItems":1,"maxItems":3}`),
		f(`jsonschema:"minimum=1"`, of[[2]int](), `{"type":"array","items":{"type":"integer","minimum":1},"minItems":2,"maxItems":2}`),
		f(`jsonschema:"minimum=9007199254740993"`, of[int64](), `{"type":"integer","minimum":9007199254740993}`),
		f(`jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1,multipleOf=0.25"`, of[float64](), `{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1,"multipleOf":0.25}`),
		f(`jsonschema:"exclusiveMinimum=0"`, of[uint8](), `{"type":"integer","exclusiveMinimum":0,"maximum":255}`),
		f(`jsonschema:"minimum=abc"`, of[int](), `!A|abc`),
		f(`jsonschema:"minimum="`, of[int](), `!A|minimum`),
		f(`jsonschema:"minimum"`, of[int](), `!A|minimum`),
		f(`jsonschema:"minimum=10,maximum=1"`, of[int](), `!A`),
		f(`jsonschema:"minimum=300"`, of[int8](), `!A|300`),
		f(`jsonschema:"minimum=-1"`, of[uint](), `!A|-1`),
		f(`jsonschema:"minimum=1"`, str, `!A|minimum`),
		f(`jsonschema:"minItems=3,maxItems=1"`, of[[]int](), `!A`),
		f(`jsonschema:"minItems=-1"`, of[[]int](), `!A|-1`),
		f(`jsonschema:"minItems=1"`, of[int](), `!A|minItems`),
		f(`jsonschema:"minItems=1"`, of[[]byte](), `!A|minItems`),
		f(`jsonschema:"pattern=^a\\,b$"`, str, `{"type":"string","pattern":"^a,b$"}`),
		f(`jsonschema:"pattern=^\\d{2\\,3}$"`, of[*string](), `{"anyOf":[{"type":"string","pattern":"^\\d{2,3}$"},{"type":"null"}]}`),
		f(`jsonschema:"pattern=(?=a)"`, str, `!A|look-around`),
		f(`jsonschema:"pattern=\\p{L}"`, str, `!A`),
		f(`jsonschema:"pattern=a\\z"`, str, `!A`),
		f(`jsonschema:"pattern=(?<n>a)"`, str, `!A`),
		f(`jsonschema:"pattern=a(?i)b"`, str, `!A`),
		f(`jsonschema:"pattern=(a"`, str, `!A`),
		f(`jsonschema:"pattern=a"`, of[int](), `!A|pattern`),
		f(`jsonschema:"format=email"`, of[oddColor](), `{"type":"string","format":"email"}`),
		f(`jsonschema:"format=date"`, of[[]string](), `{"type":"array","items":{"type":"string","format":"date"}}`),
		f(`jsonschema:"format=uri"`, str, `!A|uri`),
		f(`jsonschema:"format=int64"`, of[int64](), `!A|format`),
		f(`jsonschema:"format=date"`, of[time.Time](), `!A|date`),
		f(`jsonschema:"minLength=2"`, str, `!A|minLength`),
		f(`jsonschema:"maxLength=2"`, str, `!A|maxLength`),
		f(`jsonschema:"uniqueItems=true"`, of[[]int](), `!A|uniqueItems`),
		f(`jsonschema:"readOnly=true"`, str, `!A|readOnly`),
		f(`jsonschema:"default=x"`, str, `{"type":"string"}`),
		f(`jsonschema:"default=x"`, of[int](), `!A|x`),
		f(`jsonschema:"example=3,example=4"`, of[int](), `{"type":"integer"}`),
		f(`jsonschema:"type=string"`, of[int](), `!A|type`),
		f(`jsonschema:"bogus=1"`, str, `!A|bogus`),
		f(`jsonschema:"description=a, b"`, str, `!A`),
		f(`jsonschema:"description=a\\, b"`, str, `{"type":"string"}`),
		f(`jsonschema_extras:"x=y"`, str, `!A|extras`),
		f(`jsonschema:"oneof_required=a"`, str, `!A`),
		f(`json:"a`, str, `!A`),
		f(`jsonschema:"title=T,description=D"`, of[OddBase](), `{"title":"T","type":"object","properties":{"id":{"type":"integer"},"Name":{"type":"string"}},"required":["id","Name"],"additionalProperties":false}`),
		// customs
		f(``, of[oddCVal](), `{"type":"string","enum":["a","b"]}`),
		f(``, of[*oddCVal](), `{"anyOf":[{"type":"string","enum":["a","b"]},{"type":"null"}]}`),
		f(`jsonschema:"description=Mine."`, of[oddCVal](), `{"type":"string","enum":["a","b"]}`),
		f(`jsonschema:"enum=a"`, of[oddCVal](), `{"type":"string","enum":["a"]}`),
		f(`jsonschema:"enum=c"`, of[oddCVal](), `!A|c`),
		f(``, of[oddCPtr](), `{"type":"string","pattern":"^a"}`),
		f(``, of[[]oddCPtr](), `{"type":"array","items":{"type":"string","pattern":"^a"}}`),
		f(``, of[oddCNil](), `!A|oddCNil|nil`),
		f(``, of[oddCTrue](), `!A|oddCTrue`),
		f(``, of[oddCAny](), `!A|oddCAny`),
		f(``, of[oddCEmpty](), `!A|oddCEmpty`),
		f(``, of[oddCBig](), `{"type":"integer","minimum":9007199254740993,"maximum":9007199254740995}`),
		f(``, of[oddCOneOf](), `{"anyOf":[{"type":"string"},{"type":"integer"}]}`),
		f(``, of[*oddCOneOf](), `{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`),
		f(``, of[oddCOneOver](), `!A|oddCOneOver|oneOf`),
		f(``, of[oddCNotNullOne](), `{"title":"T","anyOf":[{"type":"string"},{"type":"null"}]}`),
		f(``, of[oddCRef](), `{"type":"object","properties":{"A":{"type":"integer"}},"required":["A"],"additionalProperties":false}`),
		f(``, of[oddCDangle](), `!A|oddCDangle|Nope`),
		f(``, of[oddCRemote](), `!A|oddCRemote|example.com`),
		f(``, of[oddCMinLen](), `!A|minLength`),
		f(``, of[oddCURI](), `!A|uri`),
		f(``, of[oddCDefault](), `{"type":"string"}`),
		f(``, of[oddCEnumNull](), `{"type":["string","null"],"enum":["x","y",null]}`),
		f(``, of[oddCWrong](), `!A|oddCWrong`),
		f(``, of[oddCPattern](), `!A|oddCPattern`),
		f(``, of[oddCMap](), `!A|oddCMap`),
		f(``, of[oddCEmptyObj](), `!A|oddCEmptyObj|root`),
		f(`jsonschema:"description=one"`, of[oddCShared](), `{"type":"string"}`),
		f(``, of[oddCAllOf](), `!A|allOf`),
		f(``, of[oddCConst](), `{"type":"string","const":"v1"}`),
		f(``, of[oddCNullable](), `!A|nullable`),
		f(``, of[oddCRootRef](), `{"$ref":"#/$defs/oddCRootRef"}`),
		f(``, of[oddJSONPanic](), `{"type":"integer"}`),
		f(`jsonschema:"format=date"`, of[oddCValFormat](), `!A|date`),
		// generics and recursion
		f(``, of[oddPair[oddPair[int, string], []oddOpt[float64]]](), `{"type":"object","properties":{"first":{"type":"object","properties":{"first":{"type":"integer"},"second":{"type":"string"}},"required":["first","second"],"additionalProperties":false},"second":{"type":"array","items":{"type":"object","properties":{"value":{"type":["number","null"]}},"required":["value"],"additionalProperties":false}}},"required":["first","second"],"additionalProperties":false}`),
		f(``, of[oddNode[oddPair[int, net.IP]]](), `{"$ref":"#/$defs/oddNode_oddPair_int_IP"}`),
		f(`jsonschema:"description=D"`, of[oddTree](), `{"anyOf":[{"$ref":"#/$defs/oddTree"}]}`),
		f(`jsonschema:"nullable,description=D"`, of[oddTree](), `{"anyOf":[{"$ref":"#/$defs/oddTree"},{"type":"null"}]}`),
		f(``, of[*oddTree](), `{"anyOf":[{"$ref":"#/$defs/oddTree"},{"type":"null"}]}`),
		f(``, of[[]oddTree](), `{"type":"array","items":{"$ref":"#/$defs/oddTree"}}`),
		f(``, of[oddMutualA](), `{"$ref":"#/$defs/oddMutualA"}`),
		f(``, of[oddSelfEmbed](), `!oddSelfEmbed|unexported`),
		f(``, of[oddMapRec](), `!A.M|map`),
		f(``, of[oddSliceRec](), `{"$ref":"#/$defs/oddSliceRec"}`),
		f(``, of[oddArrRec](), `!A|oddArrRec`),
		f(``, of[oddReqRec](), `!A|oddReqRec`),
		f(``, of[oddValRec](), `{"$ref":"#/$defs/oddValRec"}`),
		c("root tree", of[oddTree](), `keys name,kids`),
		c("root ptr", of[**oddTree](), `keys name,kids`),
		c("root custom self", of[oddCRootRef](), `keys A,Next`),
		c("root custom ref", of[oddCRef](), `keys A`),
		c("root custom empty", of[oddCEmptyObj](), `keys `),
		c("root empty", of[struct{}](), `keys `),
		c("root any", of[any](), `!any`),
		c("root error", of[error](), `!error`),
		c("root time", of[time.Time](), `!time.Time`),
		c("root string", of[string](), `!string`),
		c("root slice", of[[]OddBase](), `![]`),
		c("root map", of[map[string]string](), `!map[string]string`),
		c("root func", of[func()](), `!func()`),
		c("root chan", of[chan int](), `!chan int`),
		c("root netip", of[netip.Addr](), `!netip.Addr`),
		c("root raw", of[json.RawMessage](), `!json.RawMessage`),
		c("root bigint", of[big.Int](), `!big.Int`),
		c("root mutex", of[sync.Mutex](), `keys `),
		// embedding
		c("ptr base", of[OddPtrBase](), `keys id,Name,Extra`),
		c("tagged", of[OddTagged](), `keys base,Extra`),
		c("over", of[OddOver](), `keys id,Name`),
		c("over2", of[OddOver2](), `keys Name,id`),
		c("amb", of[OddAmb](), `!OddAmb|X`),
		c("ambtag", of[OddAmbTag](), `keys X`),
		c("unexported ptr", of[oddHiddenPtr](), `!oddBaseID`),
		c("unexported", of[oddHidden](), `keys id,Name,Z`),
		c("generic emb", of[OddGenEmb](), `keys first,second,Z`),
		c("generic emb2", of[OddGenEmb2](), `!oddOpt2`),
		c("generic emb3", of[OddGenEmb3](), `keys V,Z`),
		c("iface", of[OddEmbIface](), `!Reader|interface`),
		c("err", of[OddEmbErr](), `keys Z`),
		c("scalar", of[OddEmbScalar](), `keys OddStr,Z`),
		c("emb time", of[OddEmbTime](), `!OddEmbTime|UnmarshalJSON`),
		f("", of[OddEmbTime](), `!A|OddEmbTime|UnmarshalJSON`),
		f("", of[OddEmbTime2](), `!A|OddEmbTime2|UnmarshalJSON`),
		f("", of[OddEmbTimeTag](), `!A|UnmarshalJSON`),
		f("", of[OddEmbAddr](), `{"type":"string"}`),
		f("", of[OddEmbAddr2](), `!A|UnmarshalText|promoted`),
		c("emb raw", of[OddEmbRaw](), `!UnmarshalJSON`),
		c("local", reflect.StructOf([]reflect.StructField{{Name: "X", Type: oddLocal1()}, {Name: "Y", Type: oddLocal2()}}), `keys X,Y`),
		c("urls", of[struct {
			A struct {
				L1 []struct {
					Deep map[int]bool `json:"deep"`
				} `json:"l1"`
			} `json:"a"`
		}](), `!a.l1[].deep|map[int]bool`),
		c("dup", reflect.StructOf([]reflect.StructField{{Name: "A", Type: num, Tag: `json:"x"`}, {Name: "B", Type: num, Tag: `json:"x"`}}), `!x`),
		c("dup2", of[struct {
			A int `json:"B"`
			B int
		}](), `!B`),
		c("names", of[struct {
			A     int `json:"-,"`
			B     int `json:"a.b"`
			C     int `json:"a/b"`
			D     int `json:"a b"`
			E     int `json:"größe"`
			F     int `json:"type"`
			G     int `json:"$ref"`
			H     int `json:"a'b"`
			I     int `json:"properties"`
			J     int `json:"a~1b"`
			K     int `json:"[x]"`
			Größe int
			L     int `json:"日本"`
			M     int `json:"required,omitempty"`
			N     int `json:"$defs"`
		}](), `keys -,a.b,a/b,a b,größe,type,$ref,H,properties,a~1b,[x],Größe,日本,required,$defs`),
	}
	for _, p := range []reflect.Type{of[OddP1](), of[OddP2](), of[OddP3](), of[OddP4](), of[OddP5](), of[OddP6](), of[OddP7](), of[OddIface]()} {
		list = append(list, f("", p, `!A|promoted`))
	}
	return append(list, f("", of[OddOwn1](), `{"type":"string"}`), f("", of[OddOwn2](), `!A|promoted`))
}

// canonical returns JSON without descriptions and with sorted keys, numbers as
// they were written.
func canonical(t *testing.T, data []byte) string {
	t.Helper()
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v["description"].(string); ok {
				delete(v, "description")
			}
			for _, e := range v {
				strip(e)
			}
		case []any:
			for _, e := range v {
				strip(e)
			}
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	require.NoError(t, dec.Decode(&v), "%s", data)
	strip(v)
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// TestSchemaOfOddTypes says of many types, field by field, what becomes of them.
func TestSchemaOfOddTypes(t *testing.T) {
	t.Parallel()
	for _, c := range oddTypes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema, err := strict.Schema(c.typ)
			if parts, ok := strings.CutPrefix(c.want, "!"); ok {
				require.Error(t, err, "%s", schema)
				for part := range strings.SplitSeq(parts, "|") {
					require.Contains(t, err.Error(), part)
				}
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			require.Empty(t, verdict(schema), "%s", schema)
			require.NoError(t, strict.Check(schema))
			var root struct {
				Properties map[string]json.RawMessage
				Required   []string
			}
			require.NoError(t, json.Unmarshal(schema, &root))
			if names, ok := strings.CutPrefix(c.want, "keys "); ok {
				require.Equal(t, names, strings.Join(root.Required, ","))
				return
			}
			require.Equal(t, canonical(t, []byte(c.want)), canonical(t, root.Properties["A"]))
		})
	}
}
