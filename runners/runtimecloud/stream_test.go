package runtimecloud

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecoder(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	for _, c := range []struct {
		name, in string
		want     []string // types
		err      error    // nil: any but io.EOF
		why      string
	}{
		{"empty", "", nil, io.EOF, "no event is not an error of the line"},
		{"events", `{"type":"start"}` + "\n" + `{"type":"exit"}` + "\n", []string{"start", "exit"}, io.EOF, "one a line"},
		{"white space", "\n  \r\n" + `{"type":"exit"}` + "\r\n\n ", []string{"exit"}, io.EOF, "blank lines keep a stream open"},
		{"no newline at the end", `{"type":"exit"}`, []string{"exit"}, io.EOF, "a whole event is one"},
		{"half", `{"type":"start"}` + "\n" + `{"type":"exi`, []string{"start"}, io.ErrUnexpectedEOF, "half an event is none"},
		{"long line", `{"type":"stdout","data":"` + long + `"}` + "\n", []string{"stdout"}, io.EOF, "lines are longer than any buffer"},
		{"too long", strings.Repeat("x", maxLine+1), nil, errLongLine, "but not without bound"},
		{"too long, and ends", strings.Repeat("x", maxLine+1) + "\n", nil, errLongLine, "but not without bound"},
		{"garbage", "<html>\n", nil, nil, "no JSON"},
		{"bad base64", `{"type":"stdout","base64":"?"}` + "\n", nil, nil, "the bytes are not known"},
		{"wrong type", `{"type":"exit","exitCode":"0"}` + "\n", nil, nil, "a status is a number"},
		{"unknown", `{"type":"new","deep":{"a":[1]}}` + "\n", []string{"new"}, io.EOF, "fields are added"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.HalfReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				var got []string
				d := newDecoder(r)
				ev, err := d.next()
				for ; err == nil; ev, err = d.next() {
					got = append(got, ev.Type)
				}
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("events %q, want %q: %s", got, c.want, c.why)
				}
				if c.err != nil && err != c.err || c.err == nil && err == io.EOF {
					t.Errorf("error %v, want %v: %s", err, c.err, c.why)
				}
			}
		})
	}
}

// The offsets of a stream decide what is passed on.
func TestTake(t *testing.T) {
	at := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name    string
		cursor  int64 // at which the stream was taken up
		events  []event
		want    string
		cursor2 int64
		missing bool
	}{
		{"in order", 0, []event{{Data: "ab", Offset: at(0)}, {Data: "c", Offset: at(2)}}, "abc", 3, false},
		{"no offsets", 0, []event{{Data: "ab"}, {Data: "c"}}, "abc", 3, false},
		{"gap", 0, []event{{Data: "ab", Offset: at(0)}, {Data: "c", Offset: at(5)}}, "abc", 6, true},
		{"known already", 3, []event{{Data: "ab", Offset: at(0)}, {Data: "cde", Offset: at(2)}}, "de", 5, false},
		{"replacement characters", 0, []event{{Data: "\ufffd\ufffd", Offset: at(0)}, {Data: "c", Offset: at(2)}}, "\ufffd\ufffdc", 3, false},
		{"bytes", 0, []event{{Data: "\ufffd", Base64: []byte{0xff}, Offset: at(0)}, {Data: "c", Offset: at(1)}}, "\xffc", 2, false},
		{"negative offset", 3, []event{{Data: "ab", Offset: at(-9)}, {Data: "d", Offset: at(3)}}, "abd", 4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &execution{cursor: c.cursor}
			var got strings.Builder
			for i := range c.events {
				x.take(&got, &c.events[i], c.cursor)
			}
			if got.String() != c.want || x.cursor != c.cursor2 || x.missing != c.missing {
				t.Errorf("took %q, cursor %d, missing %v; want %q, %d, %v", got.String(), x.cursor, x.missing, c.want, c.cursor2, c.missing)
			}
		})
	}
}

// Whatever comes, decoding ends, passes on no more than there was, and the same
// bytes in other pieces decode the same.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{
		`{"type":"start","processId":"p-1"}` + "\n" + `{"type":"stdout","data":"a\n","offset":0}` + "\n" + `{"type":"exit","exitCode":0,"state":"exited"}` + "\n",
		`{"type":"continue","processId":"p-1","cursor":2}`,
		`{"type":"truncated","droppedBytes":5,"resumeAt":9}` + "\n" + `{"type":"stderr","data":"\ufffd","base64":"/w==","offset":9}`,
		`{"type":"error","error":{"code":"busy","message":"m","status":503,"retryAfterMs":1e300},"cursor":-1}`,
		"  \n" + `{"error":{"code":"host_unavailable"}}`,
		`{"type":"stdout","data":"x","offset":9223372036854775807}` + "\n" + `{"type":"stdout","data":"xyz","offset":-9223372036854775808}`,
		"\x00\n[]\nnull\n1e999\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		decode := func(r io.Reader) (out, trace string) {
			x := new(execution)
			var printed, seen strings.Builder
			d := newDecoder(r)
			for n := 0; ; n++ {
				ev, err := d.next()
				if err != nil {
					fmt.Fprintf(&seen, "%v", errors.Is(err, io.EOF))
					return printed.String(), seen.String()
				}
				if n > len(s) {
					t.Fatalf("%d events of %d bytes", n, len(s))
				}
				fmt.Fprintf(&seen, "%s %q %v;", ev.Type, ev.Data, ev.ExitCode != nil)
				if ev.Type == "stdout" || ev.Type == "stderr" {
					x.take(&printed, &ev, 0)
				}
				if ev.Error != nil {
					if e := ev.Error.toError(0); e.Status < 400 || e.retryAfter > maxPause<<20 {
						t.Fatalf("error %+v", e)
					}
				}
			}
		}
		whole, trace := decode(strings.NewReader(s))
		pieces, again := decode(iotest.OneByteReader(strings.NewReader(s)))
		if whole != pieces || trace != again {
			t.Errorf("%q and %q, %q and %q", whole, pieces, trace, again)
		}
		if len(whole) > 3*len(s) {
			t.Errorf("%d bytes of %d", len(whole), len(s))
		}
	})
}

func FuzzLateError(f *testing.F) {
	for _, s := range []string{
		`  {"error":{"code":"host_unavailable","status":503}}`, `{"error":{"code":"x"},"id":1}`, `{"error":"x"}`, `{"id":1}`, `<html>`, `[]`, `null`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if e := lateError([]byte(s)); e != nil && (e.Status < 400 || e.Code == "" || !e.late) {
			t.Errorf("lateError(%q) = %+v", s, e)
		}
	})
}
