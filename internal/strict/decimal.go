package strict

import (
	"bytes"
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// A decimal is a JSON number as it was written, to the last digit: a float64
// would confuse 9007199254740993 with its neighbour. Its value is
// 0.digits × 10^exp, so that a literal such as 1e999999999 costs nothing.
type decimal struct {
	neg    bool
	digits string // without leading and trailing zeros; empty for zero
	exp    int
}

// maxExponent stands for every exponent beyond it. An int of 32 bits holds it and
// the length of a literal.
const maxExponent = 1 << 30

// parseDecimal reads a valid JSON number.
func parseDecimal(literal string) decimal {
	s, neg := strings.CutPrefix(literal, "-")
	exp := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil && s[i+1] == '-' || e < -maxExponent {
			e = -maxExponent
		} else if err != nil || e > maxExponent {
			e = maxExponent
		}
		s, exp = s[:i], e
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := whole + fraction
	exp += len(whole)
	trimmed := strings.TrimLeft(digits, "0")
	exp -= len(digits) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	if trimmed == "" {
		return decimal{}
	}
	return decimal{neg: neg, digits: trimmed, exp: exp}
}

// parseSmall reads a JSON number that is written as an integer of at most 18
// digits.
func parseSmall(literal []byte) (int64, bool) {
	digits := bytes.TrimPrefix(literal, []byte("-"))
	if len(digits) > 18 {
		return 0, false
	}
	var x int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		x = x*10 + int64(c-'0')
	}
	if len(digits) < len(literal) {
		x = -x
	}
	return x, true
}

// compare returns -1, 0 or 1 as d is less than, equal to or greater than e.
func (d decimal) compare(e decimal) int {
	if s := cmp.Compare(d.sign(), e.sign()); s != 0 || d.digits == "" {
		return s
	}
	c := cmp.Compare(d.exp, e.exp)
	if c == 0 {
		c = strings.Compare(d.digits, e.digits)
	}
	return c * d.sign()
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.neg:
		return -1
	}
	return 1
}

// integral reports whether d has no fraction.
func (d decimal) integral() bool { return d.exp >= len(d.digits) || d.digits == "" }

// multipleOf reports whether d is e times an integer. It works with remainders
// only, since 10^exp may be far too large to write down.
func (d decimal) multipleOf(e decimal) bool {
	if d.digits == "" {
		return true
	}
	if e.digits == "" {
		return false
	}
	shift := (d.exp - len(d.digits)) - (e.exp - len(e.digits))
	if shift < 0 {
		return false // neither ends in a zero, so d has a finer last place
	}
	y, _ := new(big.Int).SetString(e.digits, 10)
	x := remainder(d.digits, y)
	ten := big.NewInt(10)
	x.Mul(x, ten.Exp(ten, big.NewInt(int64(shift)), y))
	return x.Rem(x, y).Sign() == 0
}

// remainder returns digits modulo y. It reads a few digits at a time, because
// to convert them all at once takes more than linear time.
func remainder(digits string, y *big.Int) *big.Int {
	const most = 18 // fit into an int64
	x, power, chunk := new(big.Int), new(big.Int), new(big.Int)
	for digits != "" {
		n := min(most, len(digits))
		part, _ := strconv.ParseInt(digits[:n], 10, 64)
		digits = digits[n:]
		x.Mul(x, power.Exp(chunk.SetInt64(10), big.NewInt(int64(n)), nil))
		x.Add(x, chunk.SetInt64(part))
		x.Rem(x, y)
	}
	return x
}

// isNumber reports whether s is a JSON number.
func isNumber(s string) bool {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return false
	}
	end, f := numberSyntax([]byte(s), 0)
	return f == nil && end == len(s)
}

// isInteger reports whether the JSON number s is written as an integer.
func isInteger(s string) bool { return !strings.ContainsAny(s, ".eE") }
