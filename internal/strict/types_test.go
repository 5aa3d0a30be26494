package strict_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/invopop/jsonschema"
)

// A typeCase is a Go type that has a strict schema.
type typeCase struct {
	name   string
	reason string
	typ    reflect.Type
	good   []string // arguments that decode
	bad    []string // arguments that must be refused
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

type (
	Level     string
	Celsius   float64
	Count     int
	Flag      bool
	Temporary Celsius
	Text      []byte
	Names     []string
	Grid      [2][2]int
	Stamp     time.Duration
)

// Tree recurs through a slice and a pointer.
type Tree struct {
	Value    int     `json:"value"`
	Children []Tree  `json:"children"`
	Parent   *Tree   `json:"parent"`
	Note     *string `json:"note,omitempty"`
}

// Forest is not recursive itself, but holds a type that is.
type Forest struct {
	Oak  Tree  `json:"oak" jsonschema:"description=The first one"`
	Elm  *Tree `json:"elm"`
	More []Tree
}

// Folder is a slice that recurs without a struct.
type Folder []Folder

// Expr and Term recur through each other.
type Expr struct {
	Terms []Term `json:"terms"`
}

type Term struct {
	Sub  *Expr `json:"sub"`
	Atom int   `json:"atom"`
}

// Selfish embeds a pointer to itself, which encoding/json ignores.
type Selfish struct {
	*Selfish
	Name string `json:"name"`
}

type Pair[A, B any] struct {
	First  A `json:"first"`
	Second B `json:"second"`
}

// List is generic and recursive.
type List[T any] struct {
	Head T        `json:"head"`
	Tail *List[T] `json:"tail"`
}

type Base struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

type Outer struct {
	Base
	Label int `json:"label"`
}

// Before declares a field ahead of an embedded struct that has the same name.
type Before struct {
	Label int `json:"label"`
	Base
}

type hiddenBase struct {
	Open   string
	closed string
}

type Promoting struct {
	hiddenBase
	Own int
}

type Deep struct{ Middle }
type Middle struct{ Bottom }
type Bottom struct{ Depth int }

type Left struct{ Name string }
type Right struct {
	Name string `json:"Name"`
}

// TagWins promotes Name from Right, since that one has a tag.
type TagWins struct {
	Left
	Right
}

type Named struct {
	Base `json:"base"`
	*Middle
	Names
}

// Color is a string with a closed set of values in UnmarshalText.
type Color int

func (c *Color) UnmarshalText(text []byte) error {
	switch string(text) {
	case "red", "green":
		*c = Color(len(text))
		return nil
	}
	return fmt.Errorf("want red or green")
}

func (c Color) MarshalText() ([]byte, error) {
	if c == 3 {
		return []byte("red"), nil
	}
	return []byte("green"), nil
}

// UUID is shaped like the popular package's type.
type UUID [16]byte

func (u *UUID) UnmarshalText(text []byte) error {
	if len(text) != 36 {
		return fmt.Errorf("invalid UUID length: %d", len(text))
	}
	copy(u[:], text)
	return nil
}

// ByValue has its text method on the value receiver.
type ByValue struct{ p *string }

func (b ByValue) UnmarshalText([]byte) error { return nil }

// Shouted only has MarshalJSON, which does not matter for arguments.
type Shouted struct{ Word string }

func (s Shouted) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(s.Word)) }

// Shape brings its own schema on the value receiver.
type Shape struct{ area float64 }

func (Shape) JSONSchema() *jsonschema.Schema {
	circle := jsonschema.NewProperties()
	circle.Set("kind", &jsonschema.Schema{Type: "string", Const: "circle"})
	circle.Set("radius", &jsonschema.Schema{Type: "number", Minimum: "0"})
	square := jsonschema.NewProperties()
	square.Set("kind", &jsonschema.Schema{Type: "string", Const: "square"})
	square.Set("side", &jsonschema.Schema{Type: "number"})
	return &jsonschema.Schema{
		Description: "A plane figure.",
		OneOf: []*jsonschema.Schema{
			{Type: "object", Properties: circle, Required: []string{"kind", "radius"}, AdditionalProperties: jsonschema.FalseSchema},
			{Type: "object", Properties: square, Required: []string{"kind", "side"}},
		},
	}
}

func (s *Shape) UnmarshalJSON(data []byte) error {
	var v struct{ Radius, Side float64 }
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	s.area = v.Radius + v.Side
	return nil
}

// Percent brings its own schema on the pointer receiver, from a variable.
type Percent struct{ n int }

var percentSchema = &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: "100", Description: "In percent.", Default: 50}

func (*Percent) JSONSchema() *jsonschema.Schema { return percentSchema }

func (p *Percent) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &p.n) }

// Linked returns what jsonschema.Reflect makes by default: a reference.
type Linked struct{ v linkedForm }

type linkedForm struct {
	Name string      `json:"name"`
	Next *linkedForm `json:"next,omitempty"`
}

func (Linked) JSONSchema() *jsonschema.Schema         { return jsonschema.Reflect(linkedForm{}) }
func (l *Linked) UnmarshalJSON(data []byte) error     { return json.Unmarshal(data, &l.v) }
func (Knot) JSONSchema() *jsonschema.Schema           { return knotSchema() }
func (k *Knot) UnmarshalJSON(data []byte) error       { return json.Unmarshal(data, &k.raw) }
func (Status) JSONSchema() *jsonschema.Schema         { return &jsonschema.Schema{Enum: []any{"on", "off"}} }
func (DescribedBase) JSONSchema() *jsonschema.Schema  { return Status("").JSONSchema() }
func (Attributes) JSONSchema() *jsonschema.Schema     { return attributesSchema() }
func (OptionalBits) JSONSchema() *jsonschema.Schema   { return optionalBits() }
func (o *OptionalBits) UnmarshalJSON(d []byte) error  { return json.Unmarshal(d, &o.raw) }
func (MaybeList) JSONSchema() *jsonschema.Schema      { return maybeList() }
func (m *MaybeList) UnmarshalJSON(data []byte) error  { return json.Unmarshal(data, &m.v) }
func (LinkedRoot) JSONSchema() *jsonschema.Schema     { return jsonschema.Reflect(linkedForm{}) }
func (l *LinkedRoot) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &l.v) }

// Knot refers to itself by "#".
type Knot struct{ raw any }

func knotSchema() *jsonschema.Schema {
	props := jsonschema.NewProperties()
	props.Set("inner", &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Ref: "#"}, {Type: "null"}}})
	props.Set("size", &jsonschema.Schema{Type: "integer"})
	return &jsonschema.Schema{Type: "object", Properties: props, Required: []string{"inner", "size"}}
}

type LinkedRoot struct{ v linkedForm }

// Status is a string whose schema has no type.
type Status string

// DescribedBase has a schema that a struct which embeds it does not inherit.
type DescribedBase struct{ State string }

type WithBase struct {
	DescribedBase
	Extra int
}

// Attributes is a map with a closed schema.
type Attributes map[string]string

func attributesSchema() *jsonschema.Schema {
	props := jsonschema.NewProperties()
	props.Set("lang", &jsonschema.Schema{Type: "string"})
	props.Set("dir", &jsonschema.Schema{Type: "string"})
	return &jsonschema.Schema{Type: "object", Properties: props, Required: []string{"lang", "dir"}}
}

// OptionalBits has an optional property, which becomes a nullable one.
type OptionalBits struct{ raw map[string]any }

func optionalBits() *jsonschema.Schema {
	props := jsonschema.NewProperties()
	props.Set("a", &jsonschema.Schema{Type: "string", Examples: []any{"x", 1}})
	props.Set("b", &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}})
	return &jsonschema.Schema{Version: "x", ID: "https://example.com/x", Type: "object", Properties: props, Required: []string{"a"}}
}

// MaybeList says by a type array that it may be null.
type MaybeList struct{ v []int }

func maybeList() *jsonschema.Schema {
	return &jsonschema.Schema{Items: &jsonschema.Schema{Type: "integer"}, Extras: map[string]any{"type": []string{"array", "null"}}}
}

// outerOf and innerOf return types that share one name.
func innerOf() reflect.Type {
	type Local struct{ N int }
	return of[struct {
		Mine   Local
		Others []Local
	}]()
}

func sameNames() reflect.Type {
	type Tree struct {
		Leaves []Tree `json:"leaves"`
	}
	type both struct {
		Local  Tree
		Global globalTree
	}
	return of[both]()
}

type globalTree = Tree

func wide(n int) reflect.Type {
	fields := make([]reflect.StructField, n)
	for i := range fields {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: of[int]()}
	}
	return reflect.StructOf(fields)
}

// nested returns n structs inside each other.
func nested(n int) reflect.Type {
	t := of[struct{ X int }]()
	for range n - 1 {
		t = reflect.StructOf([]reflect.StructField{{Name: "S", Type: t}})
	}
	return t
}

// branching returns a type that is small to write and large to write out.
type (
	B1 struct{ A, B, C, D, E Leaf }
	B2 struct{ A, B, C, D, E B1 }
	B3 struct{ A, B, C, D, E B2 }
	B4 struct{ A, B, C, D, E B3 }
	B5 struct{ A, B, C, D, E B4 }

	Leaf struct{ X int }
)

// Unit has an enum of which more than three are too many.
type Unit struct{ Of ManyValues }

type ManyValues string

func (ManyValues) JSONSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for i := range 240 {
		s.Enum = append(s.Enum, fmt.Sprintf("v%d", i))
	}
	return s
}

// Place embeds a type with UnmarshalText and has its own, which reflection
// cannot tell from the promoted one.
type Place struct {
	netip.Addr
	Zone string
}

func (p *Place) UnmarshalText(text []byte) error {
	p.Zone = string(text)
	return nil
}

type Wrapped struct{ netip.Addr }

var accepted = []typeCase{
	{"empty", "a tool without arguments", of[struct{}](), []string{"", " \n", "{}", " { } "}, []string{"null", "[]", `{"a":1}`, `""`}},
	{"empty_pointer", "a pointer to a struct is the struct", of[*struct{}](), []string{"{}"}, nil},
	{"scalars", "each kind has its JSON type", of[struct {
		S string
		B bool
		I int
		F float64
		G float32
	}](), []string{`{"S":"","B":true,"I":9007199254740993,"F":1.5e3,"G":-0}`}, []string{`{"S":"","B":true,"I":1.5,"F":1,"G":1}`, `{"S":1,"B":true,"I":1,"F":1,"G":1}`, `{"S":"","B":"true","I":1,"F":1,"G":1}`, `{"S":"","B":true,"I":1,"F":1,"G":1e39}`}},
	{"integers", "small integers have bounds", of[struct {
		A int8
		B int16
		C int32
		D int64
		E uint8
		F uint16
		G uint32
		H uint64
		I uint
		J uintptr
	}](), []string{`{"A":-128,"B":0,"C":0,"D":-9223372036854775808,"E":255,"F":0,"G":0,"H":18446744073709551615,"I":0,"J":0}`},
		[]string{`{"A":-129,"B":0,"C":0,"D":0,"E":0,"F":0,"G":0,"H":0,"I":0,"J":0}`, `{"A":0,"B":0,"C":0,"D":0,"E":0,"F":0,"G":0,"H":18446744073709551616,"I":0,"J":0}`, `{"A":0,"B":0,"C":0,"D":0,"E":0,"F":0,"G":0,"H":0,"I":-1,"J":0}`}},
	{"named_scalars", "a named type is what it is made of", of[struct {
		L Level
		T Temporary
		C Count
		F Flag
	}](), []string{`{"L":"x","T":1.5,"C":3,"F":false}`}, []string{`{"L":"x","T":1.5,"C":"3","F":false}`}},
	{"pointers", "a pointer is required and nullable", of[struct {
		S *string
		I *int
		U *uint8
		P **bool
		T *time.Time
		L *[]string
		N *struct{ X int }
	}](), []string{`{}`, `{"S":null,"I":null,"U":null,"P":null,"T":null,"L":null,"N":null}`, `{"S":"a","I":1,"U":2,"P":true,"T":"2024-02-29T00:00:00.5+01:00","L":["a"],"N":{"X":1}}`}, []string{`{"U":256}`, `{"N":{"X":null}}`, `{"L":[null]}`, `{"T":"2023-02-29T00:00:00Z"}`}},
	{"omit", "omitempty and omitzero are nullable too", of[struct {
		S string   `json:",omitempty"`
		I int      `json:"i,omitzero"`
		L []string `json:",omitempty"`
		B *bool    `json:"b,omitempty"`
	}](), []string{``, `{"S":null}`, `{"L":null,"i":null,"b":null,"S":"x"}`}, []string{`{"L":[null]}`, `{"I":1}`}},
	{"required_pointer", "required takes nullable back", of[struct {
		P *string   `jsonschema:"required"`
		O string    `json:",omitempty" jsonschema:"required"`
		N string    `jsonschema:"nullable"`
		L []*string `jsonschema:"nullable,minItems=1"`
	}](), []string{`{"P":"a","O":"b"}`, `{"P":"a","O":"b","L":["x"]}`}, []string{`{"O":"b"}`, `{"P":null,"O":"b"}`, `{"P":"a","O":"b","L":[]}`, `{"P":"a","O":"b","L":[null]}`}},
	{"slices", "a slice is an array and not nullable", of[struct {
		A []string
		B [][]int
		C []*int
		D Names
		E []struct{ X int }
	}](), []string{`{"A":[],"B":[[1],[]],"C":[1],"D":["x"],"E":[{"X":1}]}`}, []string{`{"A":null,"B":[],"C":[],"D":[],"E":[]}`, `{"A":[],"B":[],"C":[null],"D":[],"E":[]}`, `{"A":[],"B":[],"C":[],"D":[],"E":[{"X":1},{"X":2,"Y":3}]}`}},
	{"arrays", "encoding/json drops or zero-fills other lengths", of[struct {
		A [3]int
		B Grid
		C [0]string
		D [4]byte
	}](), []string{`{"A":[1,2,3],"B":[[1,2],[3,4]],"C":[],"D":[0,1,2,255]}`}, []string{`{"A":[1,2],"B":[[1,2],[3,4]],"C":[],"D":[0,1,2,3]}`, `{"A":[1,2,3,4],"B":[[1,2],[3,4]],"C":[],"D":[0,1,2,3]}`, `{"A":[1,2,3],"B":[[1,2],[3,4]],"C":[],"D":[0,1,2,256]}`, `{"A":[1,2,3],"B":[[1,2],[3,4]],"C":[],"D":"AAAA"}`}},
	{"bytes", "encoding/json reads base64", of[struct {
		A []byte
		B Text    `jsonschema:"description=The file"`
		C *[]byte `json:"c"`
	}](), []string{`{"A":"AAEC","B":""}`}, []string{`{"A":"A","B":""}`, `{"A":[1],"B":""}`, `{"A":"AAEC","B":"$$$$"}`}},
	{"times", "time.Time is RFC 3339", of[struct {
		At time.Time  `json:"at" jsonschema:"description=When"`
		To *time.Time `json:"to,omitempty"`
	}](), []string{`{"at":"2024-01-02T03:04:05Z"}`, `{"at":"2024-01-02T03:04:05.123456789-07:00"}`}, []string{`{"at":"2024-01-02"}`, `{"at":"now"}`, `{"at":1}`, `{"at":"2024-01-02T24:00:00Z"}`, `{"at":"2024-01-02T03:04:05"}`, `{"at":"2024-1-02T03:04:05Z"}`}},
	{"durations", "time.Duration is a number of nanoseconds", of[struct {
		A time.Duration
		B time.Duration `jsonschema:"description=How long to wait"`
		C time.Duration `jsonschema:"description=Wait in nanoseconds"`
		D Stamp
	}](), []string{`{"A":1,"B":1000000000,"C":0,"D":5}`}, []string{`{"A":"1s","B":1,"C":1,"D":1}`}},
	{"texts", "UnmarshalText makes a string", of[struct {
		A netip.Addr
		B UUID
		C ByValue
		D Color
		E *netip.Prefix
		F []Color
	}](), []string{`{"A":"1.2.3.4","B":"123e4567-e89b-12d3-a456-426614174000","C":"","D":"red","E":"10.0.0.0/8","F":["green"]}`}, []string{`{"A":"1.2.3","B":"123e4567-e89b-12d3-a456-426614174000","C":"","D":"red","F":[]}`, `{"A":"1.2.3.4","B":"x","C":"","D":"red","F":[]}`, `{"A":"1.2.3.4","B":"123e4567-e89b-12d3-a456-426614174000","C":"","D":"red","F":["blue"]}`}},
	{"text_enum", "enum values of a text type must decode", of[struct {
		C Color `jsonschema:"enum=red,enum=green"`
	}](), []string{`{"C":"red"}`}, []string{`{"C":"blue"}`}},
	{"big_float", "a big.Float has UnmarshalText alone", of[struct{ F big.Float }](), []string{`{"F":"1.5"}`}, []string{`{"F":"x"}`}},
	{"json_number", "json.Number is a number", of[struct {
		N json.Number
		P *json.Number
		L []json.Number
	}](), []string{`{"N":1e400,"L":[1,2.5]}`}, []string{`{"N":"1","L":[]}`}},
	{"quoted", "the string option makes strings of numbers and booleans", of[struct {
		I int      `json:",string"`
		U *uint8   `json:"u,string"`
		F float64  `json:"f,string,omitempty"`
		B bool     `json:",string"`
		S []int    `json:",string"`
		P **int    `json:",string"`
		E int      `json:",string" jsonschema:"enum=1,enum=2"`
		D struct{} `json:"-"`
	}](), []string{`{"I":"-5","u":"255","f":"1.5","B":"true","S":[1],"E":"1"}`}, []string{`{"I":5,"B":"true","S":[],"E":"1"}`, `{"I":"5","u":"256","B":"true","S":[],"E":"1"}`, `{"I":"x","B":"true","S":[],"E":"1"}`, `{"I":"5","B":"yes","S":[],"E":"1"}`, `{"I":"5","B":"true","S":[],"E":"3"}`, `{"I":"null","B":"true","S":[],"E":"1"}`}},
	{"names", "odd but valid names stay, invalid ones are the Go name", of[struct {
		A int `json:"-,"`
		B int `json:"a b"`
		C int `json:"größe"`
		D int `json:"x/y.z$"`
		E int `json:"'bad'"`
		F int `json:"back\\slash"`
		G int `json:","`
	}](), []string{`{"-":1,"a b":1,"größe":1,"x/y.z$":1,"E":1,"F":1,"G":1}`}, []string{`{}`}},
	{"ignored", "hidden fields are unknown keys", of[struct {
		A int    `json:"a"`
		B int    `json:"-"`
		C string `json:"c" jsonschema:"-"`
		D func() `json:"-"`
		E any    `jsonschema:"-"`
		f int
	}](), []string{`{"a":1}`}, []string{`{"a":1,"B":1}`, `{"a":1,"c":"x"}`, `{"a":1,"-":1}`, `{"a":1,"E":1}`, `{"a":1,"f":1}`}},
	{"mixed_case", "only the exact case is a known key", of[struct {
		City string `json:"city"`
		CITY string
	}](), []string{`{"city":"a","CITY":"b"}`}, []string{`{"City":"a","CITY":"b"}`}},
	{"outer_wins", "the shallower field hides the promoted one", of[Outer](), []string{`{"id":"x","label":1}`}, []string{`{"id":"x","label":"y"}`}},
	{"outer_first", "also if it is declared first", of[Before](), []string{`{"id":"x","label":1}`}, []string{`{"id":"x","label":"y"}`}},
	{"promoted", "an unexported embedded struct promotes its exported fields", of[Promoting](), []string{`{"Open":"x","Own":1}`}, []string{`{"Open":"x","Own":1,"closed":"x"}`}},
	{"deep_promotion", "promotion goes through several levels", of[Deep](), []string{`{"Depth":1}`}, nil},
	{"tag_wins", "among equals the tagged one is promoted", of[TagWins](), []string{`{"Name":"x"}`}, nil},
	{"embedded_names", "a json name ends promotion, and a named slice is a field", of[Named](), []string{`{"base":{"id":"","label":""},"Depth":1,"Names":[]}`}, []string{`{"id":""}`}},
	{"selfish", "an embedded pointer to itself adds nothing", of[Selfish](), []string{`{"name":"x"}`}, nil},
	{"hidden_embedded", "jsonschema:\"-\" hides all that is promoted", of[struct {
		Base `jsonschema:"-"`
		X    int
	}](), []string{`{"X":1}`}, []string{`{"X":1,"id":"a"}`}},
	{"anonymous", "an anonymous struct is an object like any other", of[struct {
		In struct {
			X int
			Y struct{ Z string }
		}
	}](), []string{`{"In":{"X":1,"Y":{"Z":""}}}`}, []string{`{"In":{"X":1,"Y":{}}}`}},
	{"recursive", "a recursive root is #", of[Tree](), []string{`{"value":1,"children":[]}`, `{"value":1,"children":[{"value":2,"children":[]}],"parent":{"value":3,"children":[]}}`}, []string{`{"value":1,"children":[{"value":2}]}`, `{"value":1,"children":[],"parent":{"value":3,"children":[null]}}`}},
	{"recursive_field", "a recursive type below the root is defined once", of[Forest](), []string{`{"oak":{"value":1,"children":[]},"More":[]}`}, []string{`{"oak":null,"More":[]}`}},
	{"recursive_slice", "a slice may hold itself", of[struct{ Root Folder }](), []string{`{"Root":[]}`, `{"Root":[[],[[]]]}`}, []string{`{"Root":[1]}`, `{"Root":[null]}`}},
	{"recursive_pair", "types may hold each other", of[struct{ E Expr }](), []string{`{"E":{"terms":[{"atom":1}]}}`}, []string{`{"E":{"terms":[{"atom":1,"sub":{}}]}}`}},
	{"generic", "generics are inlined like others", of[Pair[Pair[int, string], []netip.Addr]](), []string{`{"first":{"first":1,"second":""},"second":[]}`}, nil},
	{"generic_recursive", "definitions of generics have clean names", of[struct {
		A List[Base]
		B List[int]
		C List[Pair[int, *time.Time]]
		D List[struct{ X int }]
	}](), []string{`{"A":{"head":{"id":"","label":""}},"B":{"head":1,"tail":{"head":2}},"C":{"head":{"first":1}},"D":{"head":{"X":1}}}`}, []string{`{"A":{"head":1},"B":{"head":1},"C":{"head":{"first":1}},"D":{"head":{"X":1}}}`}},
	{"same_name", "types of one name are two types", sameNames(), []string{`{"Local":{"leaves":[]},"Global":{"value":1,"children":[]}}`}, []string{`{"Local":{"value":1,"children":[]},"Global":{"leaves":[]}}`}},
	{"local", "a type local to a function", innerOf(), []string{`{"Mine":{"N":1},"Others":[{"N":2}]}`}, nil},
	{"two_packages", "types of one name from two packages", of[struct {
		A debug.Module
		B Module
	}](), []string{`{"A":{"Path":"p","Version":"v","Sum":"s"},"B":{"Next":{}}}`}, []string{`{"A":{"Next":{}},"B":{}}`}},
	{"marshal_only", "MarshalJSON says nothing about arguments", of[struct{ S Shouted }](), []string{`{"S":{"Word":"x"}}`}, []string{`{"S":"X"}`}},
	{"custom_oneof", "oneOf of branches told apart becomes anyOf", of[struct {
		A Shape
		B *Shape `jsonschema:"description=Another one"`
	}](), []string{`{"A":{"kind":"circle","radius":1}}`, `{"A":{"kind":"square","side":1},"B":{"kind":"circle","radius":2}}`}, []string{`{"A":{"kind":"circle","side":1}}`, `{"A":{"kind":"oval"}}`, `{"A":{"kind":"circle","radius":-1}}`, `{"A":null}`}},
	{"custom_pointer", "JSONSchema on the pointer counts, and its result is not written to", of[struct {
		A Percent
		B Percent `jsonschema:"description=Other"`
		C *Percent
	}](), []string{`{"A":1,"B":100}`}, []string{`{"A":1,"B":101}`}},
	{"custom_linked", "the definitions of a foreign schema move to the root", of[struct {
		A Linked
		B []Linked
	}](), []string{`{"A":{"name":"x","next":{"name":"y"}},"B":[{"name":"z"}]}`}, []string{`{"A":{"name":"x","next":{}},"B":[]}`}},
	{"custom_root", "a root that JSONSchema describes by a reference", of[LinkedRoot](), []string{`{"name":"x","next":{"name":"y"}}`}, []string{`{"next":{"name":"y"}}`}},
	{"custom_self", "# in a foreign schema is that schema", of[struct{ K Knot }](), []string{`{"K":{"size":1,"inner":{"size":2}}}`}, []string{`{"K":{"size":1,"inner":{"K":1}}}`}},
	{"custom_self_root", "# of a foreign root is the root", of[Knot](), []string{`{"size":1,"inner":{"size":2}}`}, []string{`{"inner":{"size":2}}`}},
	{"custom_enum", "an enum alone implies its type", of[struct {
		S Status
		N *Status `jsonschema:"enum=on"`
	}](), []string{`{"S":"on"}`, `{"S":"off","N":"on"}`}, []string{`{"S":"x"}`, `{"S":"on","N":"off"}`}},
	{"custom_map", "a map with a closed schema is fine", of[struct{ A Attributes }](), []string{`{"A":{"lang":"de","dir":"ltr"}}`}, []string{`{"A":{"lang":"de","dir":"ltr","x":"y"}}`}},
	{"custom_optional", "what was optional becomes nullable", of[struct{ O OptionalBits }](), []string{`{"O":{"a":"x"}}`, `{"O":{"a":"x","b":["y"]}}`, `{"O":{"a":"x","b":null}}`}, []string{`{"O":{"b":null}}`}},
	{"custom_null", "a nullable container gets a branch", of[struct {
		M MaybeList
		N *MaybeList
	}](), []string{`{"M":[1]}`, `{"M":null}`}, []string{`{"M":["x"]}`}},
	{"enums", "enums of all kinds", of[struct {
		S Level    `jsonschema:"enum=low,enum=high,enum="`
		I Count    `jsonschema:"enum=1,enum=-2"`
		F float64  `jsonschema:"enum=0.5,enum=1e3"`
		B bool     `jsonschema:"enum=true"`
		L []Level  `jsonschema:"enum=a,enum=b"`
		P *Level   `jsonschema:"enum=a"`
		A [2]Count `jsonschema:"enum=1,enum=2"`
		Q []*Count `json:",omitempty" jsonschema:"enum=9007199254740993"`
	}](), []string{`{"S":"","I":-2,"F":1000,"B":true,"L":["a","b"],"A":[1,2]}`, `{"S":"low","I":1,"F":5e-1,"B":true,"L":[],"A":[1,1],"P":"a","Q":[9007199254740993]}`},
		[]string{`{"S":"lo","I":-2,"F":1000,"B":true,"L":[],"A":[1,2]}`, `{"S":"","I":2,"F":1000,"B":true,"L":[],"A":[1,2]}`, `{"S":"","I":1,"F":1000,"B":false,"L":[],"A":[1,2]}`, `{"S":"","I":1,"F":1000,"B":true,"L":["c"],"A":[1,2]}`, `{"S":"","I":1,"F":1000,"B":true,"L":[],"A":[1,3]}`, `{"S":"","I":1,"F":1000,"B":true,"L":[],"A":[1,2],"Q":[9007199254740992]}`}},
	{"bounds", "bounds stay exact", of[struct {
		A int     `jsonschema:"minimum=1,maximum=9007199254740993"`
		B float64 `jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1"`
		C int     `jsonschema:"multipleOf=5"`
		D float64 `jsonschema:"multipleOf=0.01"`
		E uint8   `jsonschema:"maximum=10"`
		F int8    `jsonschema:"exclusiveMinimum=0"`
		G []int   `jsonschema:"minimum=0,minItems=1,maxItems=2"`
		H *int    `jsonschema:"minimum=0"`
	}](), []string{`{"A":9007199254740993,"B":0.5,"C":-10,"D":0.07,"E":10,"F":1,"G":[0]}`},
		[]string{`{"A":9007199254740994,"B":0.5,"C":0,"D":0,"E":0,"F":1,"G":[0]}`, `{"A":1,"B":0,"C":0,"D":0,"E":0,"F":1,"G":[0]}`, `{"A":1,"B":0.5,"C":3,"D":0,"E":0,"F":1,"G":[0]}`, `{"A":1,"B":0.5,"C":0,"D":0.075,"E":0,"F":1,"G":[0]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":11,"F":1,"G":[0]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":0,"F":0,"G":[0]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":0,"F":1,"G":[]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":0,"F":1,"G":[1,2,3]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":0,"F":1,"G":[-1]}`, `{"A":1,"B":0.5,"C":0,"D":0,"E":0,"F":1,"G":[1],"H":-1}`}},
	{"strings", "patterns and formats", of[struct {
		A string   `jsonschema:"pattern=^[a-z]{2\\,3}$"`
		B string   `jsonschema:"format=email"`
		C *string  `jsonschema:"format=uuid"`
		D []string `jsonschema:"pattern=^x"`
		E string   `jsonschema:"format=date,title=Day"`
	}](), []string{`{"A":"ab","B":"a@example.com","D":["xy"],"E":"2024-02-29"}`, `{"A":"\u0061b","B":"a@b","C":"123E4567-e89b-12d3-a456-426614174000","D":[],"E":"2024-02-28"}`}, []string{`{"A":"abcd","B":"a@example.com","D":[],"E":"2024-02-29"}`, `{"A":"ab","B":"example.com","D":[],"E":"2024-02-29"}`, `{"A":"ab","B":"a@b","D":["y"],"E":"2024-02-29"}`, `{"A":"ab","B":"a@b","D":[],"E":"2023-02-29"}`, `{"A":"ab","B":"a@b","C":"x","D":[],"E":"2024-02-29"}`}},
	{"descriptions", "descriptions keep commas, quotes and newlines", of[struct {
		A string   `jsonschema:"description=One\\, two\\, three,title=T"`
		B Base     `jsonschema_description:"Commas, here, are free: \"<&>\"\nand lines"`
		C *Base    `jsonschema:"description=Nullable"`
		D []string `jsonschema:"description=A list"`
		E int      `jsonschema:"default=5,example=1,example=2"`
		F string   `jsonschema:"description=With default,default=x"`
		G *int     `jsonschema:"description=Both,nullable"`
	}](), []string{`{"A":"","B":{"id":"","label":""},"D":[],"E":5,"F":""}`}, nil},
	{"share", "types used often are shared if writing them out is too much", of[B5](), nil, nil},
	{"share_enum", "so are their enums", of[struct{ A, B, C, D, E Unit }](), nil, nil},
	{"wrapped_text", "one that only wraps another is that text", of[struct{ W Wrapped }](), []string{`{"W":"1.2.3.4"}`}, []string{`{"W":"x"}`}},
	{"limit_properties", "5000 properties are accepted", wide(5000), nil, nil},
	{"limit_depth", "ten objects inside each other are accepted", nested(10), []string{strings.Repeat(`{"S":`, 9) + `{"X":1}` + strings.Repeat("}", 9)}, nil},
}

// Module shares its name with debug.Module, and both are recursive.
type Module struct {
	Next *Module
}

// A refusal is a Go type without a strict schema.
type refusal struct {
	name   string
	reason string // part of the error
	path   string
	typ    reflect.Type
}

type (
	Opaque   struct{}
	Vague    struct{}
	NoSchema struct{}
	Panics   struct{}
	Overlap  struct{}
	Open     struct{}
	Dangling struct{}
	Lengthy  struct{}
	Extended struct{ X int }
	Invalid  struct{}
	Endless  *Endless
	Loop     struct {
		Again *Loop `jsonschema:"required"`
	}
	Ring struct {
		Twice [2]*Ring
	}
	hiddenPtr struct{ X int }
	HasPtr    struct {
		*hiddenPtr
		Y int
	}
	WithTime struct {
		time.Time
		Zone string
	}
	WithAddr struct {
		netip.Addr
		Port int
	}
	Same1     struct{ Name string }
	Same2     struct{ Name string }
	Ambiguous struct {
		Same1
		Same2
	}
	Twice1   struct{ Base }
	Twice2   struct{ Base }
	Stringer interface{ String() string }
	RawLike  struct{ json.RawMessage }
	Channel  chan int
	Numbered int
)

func (*Opaque) UnmarshalJSON([]byte) error      { return nil }
func (Vague) UnmarshalJSON([]byte) error        { return nil }
func (NoSchema) JSONSchema() *jsonschema.Schema { return nil }
func (Panics) JSONSchema() *jsonschema.Schema   { panic("no") }
func (Lengthy) JSONSchema() *jsonschema.Schema {
	n := uint64(3)
	return &jsonschema.Schema{Type: "string", MinLength: &n}
}
func (Open) JSONSchema() *jsonschema.Schema          { return &jsonschema.Schema{Type: "object"} }
func (Dangling) JSONSchema() *jsonschema.Schema      { return &jsonschema.Schema{Ref: "#/$defs/Other"} }
func (Extended) JSONSchemaExtend(*jsonschema.Schema) {}
func (Invalid) JSONSchema() *jsonschema.Schema       { return jsonschema.TrueSchema }
func (Overlap) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Type: "number"}}}
}

func (Channel) JSONSchema() *jsonschema.Schema  { return &jsonschema.Schema{Type: "integer"} }
func (Numbered) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer"} }

func tagged(tag string, t reflect.Type) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "F", Type: t, Tag: reflect.StructTag(tag)}})
}

var refused = []refusal{
	{"any", "concrete", "any", of[any]()},
	{"error", "interface", "error", of[error]()},
	{"string_root", "JSON object", "string", of[string]()},
	{"named_root", "JSON object", "Level", of[Level]()},
	{"slice_root", "JSON object", "", of[[]Base]()},
	{"map_root", "struct with a field of type fnloop.Map[int]", "", of[map[string]int]()},
	{"time_root", "JSON object", "Time", of[time.Time]()},
	{"func_root", "func", "", of[func()]()},
	{"custom_scalar_root", "JSON object", "Percent", of[Percent]()},
	{"map", "fnloop.Map[int], or a slice of structs", "M", of[struct{ M map[string]int }]()},
	{"named_map", "fnloop.Map[[]string]", "M", of[struct{ M url.Values }]()},
	{"nested_map", "fnloop.Map[fnloop.JSON]", "Items[].Meta", of[struct {
		Items []struct {
			Meta map[string]any `json:"meta"`
		} `json:"items"`
	}]()},
	{"any_field", "fnloop.JSON", "A", of[struct{ A any }]()},
	{"any_slice", "fnloop.JSON", "A[]", of[struct{ A []any }]()},
	{"iface", "concrete type", "S", of[struct{ S Stringer }]()},
	{"raw", "fnloop.JSON", "R", of[struct{ R json.RawMessage }]()},
	{"raw_pointer", "fnloop.JSON", "R", of[struct{ R *json.RawMessage }]()},
	{"raw_embedded", "UnmarshalJSON", "R", of[struct{ R RawLike }]()},
	{"func", "no JSON form", "F", of[struct{ F func() }]()},
	{"chan", "no JSON form", "C", of[struct{ C chan int }]()},
	{"complex", "complex", "C", of[struct{ C complex128 }]()},
	{"complex_small", "complex", "C[]", of[struct{ C [2]complex64 }]()},
	{"unsafe", "no JSON form", "P", of[struct{ P unsafe.Pointer }]()},
	{"big_int", "JSONSchema", "I", of[struct{ I big.Int }]()},
	{"url", "url.Parse", "U", of[struct{ U *url.URL }]()},
	{"unmarshal_pointer", "JSONSchema", "O", of[struct{ O Opaque }]()},
	{"unmarshal_value", "JSONSchema", "O[]", of[struct{ O []*Vague }]()},
	{"unmarshal_root", "JSONSchema", "Opaque", of[Opaque]()},
	{"promoted_json", "promoted", "W", of[struct{ W WithTime }]()},
	{"promoted_text", "promoted", "W", of[struct{ W WithAddr }]()},
	{"promoted_anonymous", "named field", "W", of[struct {
		W struct {
			time.Time
			X int
		}
	}]()},
	{"promoted_root", "promoted", "WithTime", of[WithTime]()},
	{"promoted_custom", "embedded field", "W", of[struct{ W WithBase }]()},
	{"promoted_own_text", "named field", "P", of[struct{ P Place }]()},
	{"nil_schema", "nil", "N", of[struct{ N NoSchema }]()},
	{"panicking_schema", "panics", "P", of[struct{ P Panics }]()},
	{"overlapping_oneof", "overlap", "O", of[struct{ O Overlap }]()},
	{"open_object", "properties", "O", of[struct{ O Open }]()},
	{"dangling_ref", "Other", "D", of[struct{ D Dangling }]()},
	{"min_length_schema", "minLength", "L", of[struct{ L Lengthy }]()},
	{"true_schema", "true", "I", of[struct{ I Invalid }]()},
	{"custom_kind", "cannot decode", "B", of[struct{ B DescribedBase }]()},
	{"custom_chan", "cannot decode", "C", of[struct{ C Channel }]()},
	{"quoted_custom", "JSONSchema", "N", of[struct {
		N Numbered `json:",string"`
	}]()},
	{"extend", "JSONSchemaExtend", "E", of[struct{ E Extended }]()},
	{"embedded_pointer", "unexported", "HasPtr.hiddenPtr", of[HasPtr]()},
	{"ambiguous", "Same2.Name", "Ambiguous.Same1.Name", of[Ambiguous]()},
	{"diamond", "two ways", "Base.ID", reflect.StructOf([]reflect.StructField{
		{Name: "Twice1", Type: of[Twice1](), Anonymous: true},
		{Name: "Twice2", Type: of[Twice2](), Anonymous: true},
	})},
	{"duplicate", "name of its own", "A", reflect.StructOf([]reflect.StructField{
		{Name: "A", Type: of[int](), Tag: `json:"x"`},
		{Name: "B", Type: of[int](), Tag: `json:"x"`},
	})},
	{"duplicate_untagged", "name of its own", "", of[struct {
		A int `json:"B"`
		B int
	}]()},
	{"endless_pointer", "without end", "E", of[struct{ E Endless }]()},
	{"endless_root", "without end", "Endless", of[Endless]()},
	{"required_cycle", "finite", "Loop", of[Loop]()},
	{"array_cycle", "finite", "R", of[struct{ R Ring }]()},
	{"empty_struct", "at the root only", "E", of[struct{ E struct{} }]()},
	{"mutex", "at the root only", "Mu", of[struct{ Mu *sync.Mutex }]()},
	{"own_time", "at the root only", "T", of[struct{ T ownTime }]()},
	{"quoted_string", "inside a JSON string", "S", of[struct {
		S string `json:",string"`
	}]()},
	{"quoted_text", "UnmarshalText", "C", of[struct {
		C Color `json:",string"`
	}]()},
	{"too_wide", "5000", "", wide(5001)},
	{"too_deep", "10", "", nested(11)},
	{"deep_slices", "deeply", "", tagged("", deepSlice)},
	{"many_enums", "1000", "struct", tagged(manyEnums(1001), of[string]())},
	{"long_enum", "15000", "struct.F", tagged(longEnum(300, 60), of[string]())},
	{"long_names", "120000", "", longNames()},
	{"func_in_pointer", "no JSON form", "F", of[struct{ F **func() }]()},

	{"tag_unknown", "frobnicate", "F", tagged(`jsonschema:"frobnicate=1"`, of[int]())},
	{"tag_unknown_word", "optional", "F", tagged(`jsonschema:"optional"`, of[int]())},
	{"tag_empty_part", "unknown", "F", tagged(`jsonschema:"required,"`, of[int]())},
	{"tag_comma", "two", "F", tagged(`jsonschema:"description=one, two"`, of[int]())},
	{"tag_required_value", "required=true", "F", tagged(`jsonschema:"required=true"`, of[int]())},
	{"tag_contradiction", "contradict", "F", tagged(`jsonschema:"required,nullable"`, of[*int]())},
	{"tag_twice", "twice", "F", tagged(`jsonschema:"minimum=1,minimum=2"`, of[int]())},
	{"tag_two_descriptions", "twice", "F", tagged(`jsonschema:"description=a" jsonschema_description:"b"`, of[int]())},
	{"tag_extras", "jsonschema_extras", "F", tagged(`jsonschema_extras:"x=1"`, of[int]())},
	{"tag_type", "type", "F", tagged(`jsonschema:"type=string"`, of[int]())},
	{"tag_oneof", "anyOf", "F", tagged(`jsonschema:"oneof_type=string;integer"`, of[int]())},
	{"tag_min_length", `jsonschema:"pattern=^[\\s\\S]{3\\,}$"`, "F", tagged(`jsonschema:"minLength=3"`, of[string]())},
	{"tag_max_length", "maxLength", "F", tagged(`jsonschema:"maxLength=3"`, of[string]())},
	{"tag_unique", "uniqueItems", "F", tagged(`jsonschema:"uniqueItems=true"`, of[[]string]())},
	{"tag_read_only", "readOnly", "F", tagged(`jsonschema:"readOnly=true"`, of[string]())},
	{"tag_format", "uri", "F", tagged(`jsonschema:"format=uri"`, of[string]())},
	{"tag_format_time", "date-time", "F", tagged(`jsonschema:"format=date"`, of[time.Time]())},
	{"tag_pattern", "missing", "F", tagged(`jsonschema:"pattern=("`, of[string]())},
	{"tag_lookahead", "look-around", "F", tagged(`jsonschema:"pattern=(?=x)"`, of[string]())},
	{"tag_unicode_class", "Python", "F", tagged(`jsonschema:"pattern=\\p{L}+"`, of[string]())},
	{"tag_number", "not a JSON number", "F", tagged(`jsonschema:"minimum=abc"`, of[int]())},
	{"tag_hex", "not a JSON number", "F", tagged(`jsonschema:"minimum=0x10"`, of[int]())},
	{"tag_nan", "not a JSON number", "F", tagged(`jsonschema:"minimum=NaN"`, of[float64]())},
	{"tag_fraction", "not an integer", "F", tagged(`jsonschema:"minimum=1.5"`, of[int]())},
	{"tag_overflow", "range", "F", tagged(`jsonschema:"maximum=300"`, of[int8]())},
	{"tag_negative_unsigned", "range", "F", tagged(`jsonschema:"minimum=-1"`, of[uint]())},
	{"tag_float_overflow", "range", "F", tagged(`jsonschema:"maximum=1e400"`, of[float64]())},
	{"tag_empty_range", "no value", "F", tagged(`jsonschema:"minimum=5,maximum=4"`, of[int]())},
	{"tag_empty_open_range", "no value", "F", tagged(`jsonschema:"exclusiveMinimum=1,exclusiveMaximum=2"`, of[int]())},
	{"tag_empty_length", "no value", "F", tagged(`jsonschema:"minItems=5,maxItems=4"`, of[[]int]())},
	{"tag_negative_length", "whole number", "F", tagged(`jsonschema:"minItems=-1"`, of[[]int]())},
	{"tag_array_length", "fixed length", "F", tagged(`jsonschema:"minItems=1"`, of[[2]int]())},
	{"tag_multiple", "greater than zero", "F", tagged(`jsonschema:"multipleOf=0"`, of[int]())},
	{"tag_min_on_string", "does not apply", "F", tagged(`jsonschema:"minimum=1"`, of[string]())},
	{"tag_pattern_on_int", "does not apply", "F", tagged(`jsonschema:"pattern=x"`, of[int]())},
	{"tag_items_on_string", "does not apply", "F", tagged(`jsonschema:"minItems=1"`, of[string]())},
	{"tag_enum_on_struct", "does not apply", "F", tagged(`jsonschema:"enum=a"`, of[Base]())},
	{"tag_enum_on_nested", "does not apply", "F", tagged(`jsonschema:"enum=a"`, of[[][]string]())},
	{"tag_enum_on_bytes", "base64", "F", tagged(`jsonschema:"enum=AAAA"`, of[[]byte]())},
	{"tag_min_on_quoted", "does not apply", "F", tagged(`json:",string" jsonschema:"minimum=1"`, of[int]())},
	{"tag_enum_kind", "not a JSON number", "F", tagged(`jsonschema:"enum=a"`, of[int]())},
	{"tag_enum_fraction", "not an integer", "F", tagged(`jsonschema:"enum=1.5"`, of[int]())},
	{"tag_enum_overflow", "decoded", "F", tagged(`jsonschema:"enum=300"`, of[int8]())},
	{"tag_enum_text", "decoded", "F", tagged(`jsonschema:"enum=blue"`, of[Color]())},
	{"tag_enum_bool", "true nor false", "F", tagged(`jsonschema:"enum=yes"`, of[bool]())},
	{"tag_enum_twice", "twice", "F", tagged(`jsonschema:"enum=1,enum=1.0"`, of[float64]())},
	{"tag_enum_bounds", "contradicts", "F", tagged(`jsonschema:"enum=1,enum=9,maximum=5"`, of[int]())},
	{"tag_enum_pattern", "contradicts", "F", tagged(`jsonschema:"enum=a,pattern=^b"`, of[string]())},
	{"tag_enum_custom", "none of those", "F", tagged(`jsonschema:"enum=broken"`, of[Status]())},
	{"tag_default", "not a JSON number", "F", tagged(`jsonschema:"default=x"`, of[int]())},
	{"tag_default_enum", "contradicts", "F", tagged(`jsonschema:"enum=a,default=b"`, of[string]())},
	{"tag_embedded", "promoted", "Base", of[struct {
		Base `jsonschema:"description=x"`
	}]()},
	{"tag_malformed", "malformed", "F", tagged("jsonschema:'required'", of[int]())},
	{"tag_malformed_json", "malformed", "F", tagged(`json: "x"`, of[int]())},
	{"tag_utf8", "UTF-8", "F", tagged("jsonschema:\"description=\xff\"", of[int]())},
}

type ownTime time.Time

// deepSlice is nested more deeply than any answer could be.
var deepSlice = func() reflect.Type {
	t := of[int]()
	for range 200 {
		t = reflect.SliceOf(t)
	}
	return t
}()

func manyEnums(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",enum=v%d", i)
	}
	return `jsonschema:"` + b.String()[1:] + `"`
}

func longEnum(n, size int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",enum=%0*d", size, i)
	}
	return `jsonschema:"` + b.String()[1:] + `"`
}

func longNames() reflect.Type {
	fields := make([]reflect.StructField, 13)
	for i := range fields {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i) + strings.Repeat("x", 10000), Type: of[int]()}
	}
	return reflect.StructOf(fields)
}
