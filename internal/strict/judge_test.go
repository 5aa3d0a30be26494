package strict_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	judge "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// TestDecodeAgreesWithJudge holds mutations of good arguments against both the
// Decoder and an independent validator of JSON Schema.
func TestDecodeAgreesWithJudge(t *testing.T) {
	t.Parallel()
	for _, c := range accepted {
		if len(c.good) == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema, err := strict.Schema(c.typ)
			require.NoError(t, err)
			d, err := strict.Compile(schema)
			require.NoError(t, err)
			other := independent(t, schema)
			r := rand.New(rand.NewPCG(1, 2))
			for _, args := range append(c.good, c.bad...) {
				var v any
				dec := json.NewDecoder(strings.NewReader(args))
				dec.UseNumber()
				if dec.Decode(&v) != nil {
					continue
				}
				for range 200 {
					data, err := json.Marshal(mutate(r, v))
					require.NoError(t, err)
					agree(t, d, other, data)
				}
			}
		})
	}
}

// agree compares the two verdicts, except where JSON Schema is meant to be
// more lenient: an integer written with a fraction or an exponent, and a
// nullable key that is missing.
func agree(t testing.TB, d *strict.Decoder, other *judge.Schema, data []byte) {
	t.Helper()
	doc, err := judge.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	theirs := other.Validate(doc)
	ours := d.Decode(data, nil)
	switch {
	case (ours == nil) == (theirs == nil):
	case ours == nil && strings.Contains(theirs.Error(), "missing propert"):
	case ours != nil && strings.Contains(ours.Error(), "without fraction and exponent"):
	default:
		t.Fatalf("%s: ours: %v, theirs: %v", data, ours, theirs)
	}
}

// mutate returns v with some parts replaced.
func mutate(r *rand.Rand, v any) any {
	if r.IntN(8) == 0 {
		return []any{
			nil, true, false, "", "x", "red", "2024-02-29", "2024-01-02T03:04:05Z", "1", "a@b", "low", "AAAA",
			json.Number("0"), json.Number("-1"), json.Number("1.5"), json.Number("3.0"), json.Number("255"), json.Number("256"),
			json.Number("9007199254740993"), json.Number("1e3"), []any{}, []any{json.Number("1")}, []any{"x", nil}, map[string]any{},
		}[r.IntN(24)]
	}
	switch v := v.(type) {
	case []any:
		var list []any
		for _, e := range v {
			for range 1 + r.IntN(10)/9 - r.IntN(10)/9 {
				list = append(list, mutate(r, e))
			}
		}
		if list == nil {
			list = []any{}
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, e := range v {
			switch r.IntN(20) {
			case 0:
				object[name+"x"] = e
			case 1:
			default:
				object[name] = mutate(r, e)
			}
		}
		return object
	}
	return v
}

// TestFormatsAgreeWithJudge compares the formats on texts near their edges.
func TestFormatsAgreeWithJudge(t *testing.T) {
	t.Parallel()
	texts := map[string][]string{
		"date-time": {"2024-01-02T03:04:05Z", "2024-01-02T03:04:05.1Z", "2024-01-02T03:04:05.Z", "2024-01-02T03:04:05+23:59", "2024-01-02T03:04:05+24:00", "2024-13-02T03:04:05Z", "2024-01-02 03:04:05Z", "2024-01-02T03:04Z", "2024-01-02T23:59:61Z", ""},
		"time":      {"03:04:05Z", "03:04:05", "24:00:00Z", "03:04:05.123-01:30", "03:60:00Z", "3:04:05Z", "03:04:05+1:00"},
		"date":      {"2024-02-29", "2023-02-29", "2024-2-29", "24-02-29", "2024-02-30", "2024-00-10", "2024/02/29"},
		"duration":  {"P1D", "P", "PT", "P1Y2M3DT4H5M6S", "PT1H", "P1W", "P1W1D", "1D", "P1H", "PT1D", "P1DT", "PT1M", "P1M"},
		"email":     {"a@b", "a@b.c", "a@", "a", "a.b@c", ".a@b", "a.@b", "a..b@c", "a+b@c", "a b@c", "a@-b", "a@b@c"},
		"hostname":  {"a", "a.b", "a-b", "-a", "a-", "a..b", "", "a_b", "ä", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a"},
		"ipv4":      {"1.2.3.4", "1.2.3", "1.2.3.256", "01.2.3.4", "1.2.3.4.5", "::1", ""},
		"ipv6":      {"::1", "::", "1.2.3.4", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "12345::"},
		"uuid":      {"123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400", "g23e4567-e89b-12d3-a456-426614174000"},
	}
	for format, list := range texts {
		t.Run(format, func(t *testing.T) {
			schema := []byte(property(`{"type":"string","format":"` + format + `"}`))
			d, err := strict.Compile(schema)
			require.NoError(t, err)
			other := independent(t, schema)
			for _, s := range list {
				data, err := json.Marshal(map[string]string{"a": s})
				require.NoError(t, err)
				agree(t, d, other, data)
			}
		})
	}
}

// TestNumbersAgreeWithJudge compares bounds and multiples on literals of many
// sizes.
func TestNumbersAgreeWithJudge(t *testing.T) {
	t.Parallel()
	literals := []string{"0", "-0", "0.0", "1", "-1", "0.1", "0.30", "1e2", "1E+2", "100", "99.999999999999999999", "1e-7", "12e-1", "1.2", "9007199254740993", "9007199254740992", "-1e20", "123456789012345678901234567890"}
	for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"} {
		t.Run(keyword, func(t *testing.T) {
			for _, limit := range literals {
				if keyword == "multipleOf" && strings.Trim(limit, "-0.") == "" || keyword == "multipleOf" && limit[0] == '-' {
					continue
				}
				schema := []byte(property(`{"type":"number","` + keyword + `":` + limit + `}`))
				d, err := strict.Compile(schema)
				require.NoError(t, err, limit)
				other := independent(t, schema)
				for _, s := range literals {
					agree(t, d, other, []byte(`{"a":`+s+`}`))
				}
			}
		})
	}
}
