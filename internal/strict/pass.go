package strict

import (
	"fmt"
	"slices"
	"strings"
)

// A pass holds arguments against a schema in one walk over their tokens.
type pass struct {
	scanner
	trail    trail
	problems []string
	count    int // of all problems, with those that tell branches apart counted more
	more     int // problems found beyond maxProblems
	quiet    int // above zero while branches are only tried
	scratch  []byte
	tried    map[attempt]int
}

// An attempt is a branch held against the value at a position.
type attempt struct {
	node *node
	pos  int
}

// wrongBranch is what a problem counts that shows a branch of an anyOf to be
// the wrong one, in the choice of the branch to report on.
const wrongBranch = 100

// maxStrangers is how many unknown keys of one object are told apart, and so
// counted.
const maxStrangers = 1000

// report notes a problem at the current place, in words that are only made if
// they are wanted.
func (p *pass) report(problem func() string) {
	p.count++
	if p.quiet > 0 {
		return
	}
	if len(p.problems) == maxProblems {
		p.more++
		return
	}
	p.problems = append(p.problems, p.trail.String()+": "+problem())
}

// mismatch notes that the value raw does not fit n.
func (p *pass) mismatch(n *node, raw []byte) {
	if len(n.enum) == 1 {
		p.count += wrongBranch
	}
	p.report(func() string { return "expected " + n.expect() + ", got " + describe(raw, n) })
}

// value reads one value.
func (p *pass) value(n *node) {
	if n.anyOf != nil {
		p.union(n)
		return
	}
	k := kindAt(p.peek())
	if k&n.kinds == 0 && (k != number || n.kinds&integer == 0) {
		p.mismatch(n, p.skip())
		return
	}
	switch k {
	case object:
		p.object(n)
	case array:
		p.array(n)
	case text:
		p.text(n)
	case number:
		p.number(n)
	default:
		if raw := p.literal(); !n.lists(k, string(raw)) {
			p.mismatch(n, raw)
		}
	}
}

// lists reports whether the literal is one of the values of an enum.
func (n *node) lists(k kinds, literal string) bool {
	if n.enum == nil {
		return true
	}
	x := value{kind: k, text: literal}
	if k == number {
		return n.numbers[x.identity()]
	}
	return containsEqual(n.enum, &x)
}

func (p *pass) text(n *node) {
	start := p.pos
	raw, escaped := p.str()
	if n.enum == nil && n.pattern == nil && n.format == nil {
		return
	}
	s := raw
	if escaped {
		p.scratch = unescape(slices.Grow(p.scratch[:0], len(raw)), raw)
		s = p.scratch
	}
	if n.enum != nil && !n.texts[string(s)] ||
		n.pattern != nil && !n.pattern.match(s) ||
		n.format != nil && !n.format.valid(string(s)) {
		p.mismatch(n, p.data[start:p.pos])
	}
}

func (p *pass) number(n *node) {
	raw := p.literal()
	if n.kinds&number == 0 && !isInteger(string(raw)) {
		p.mismatch(n, raw)
		return
	}
	if n.enum == nil && n.bounds == nil {
		return
	}
	if !n.lists(number, string(raw)) || !n.within(raw) {
		p.mismatch(n, raw)
	}
}

// within reports whether the number literal keeps to the bounds of n.
func (n *node) within(literal []byte) bool {
	x, small := parseSmall(literal)
	var d decimal
	parsed := false
	for i := range n.bounds {
		b := &n.bounds[i]
		if small && b.isSmall {
			if !b.allowsSmall(x) {
				return false
			}
			continue
		}
		if !parsed {
			d, parsed = parseDecimal(string(literal)), true
		}
		if !b.allows(d) {
			return false
		}
	}
	return true
}

func (p *pass) array(n *node) {
	count := 0
	for p.scanner.more() {
		p.trail = append(p.trail, crumb{index: count})
		p.value(n.items)
		p.trail = p.trail[:len(p.trail)-1]
		count++
	}
	if count < n.minItems || n.maxItems >= 0 && count > n.maxItems {
		p.report(func() string { return fmt.Sprintf("expected %s, got %d", n.expect(), count) })
	}
}

func (p *pass) object(n *node) {
	var small [2]uint64
	seen := small[:]
	if len(n.props) > 64*len(small) {
		seen = make([]uint64, (len(n.props)+63)/64)
	}
	next := 0
	var told, strangers map[string]bool // the keys that were reported
	for p.scanner.more() {
		name, escaped := p.key()
		if escaped {
			p.scratch = unescape(p.scratch[:0], name)
			name = p.scratch
		}
		i := n.names.find(name, next)
		if i < 0 {
			if len(strangers) < maxStrangers && !strangers[string(name)] {
				if strangers == nil {
					strangers = map[string]bool{}
				}
				strangers[string(name)] = true
				p.unknown(n, name)
			}
			p.skip()
			continue
		}
		p.trail = append(p.trail, crumb{name: n.names.list[i], index: -1})
		if bit := uint64(1) << (i % 64); seen[i/64]&bit == 0 {
			seen[i/64] |= bit
			p.value(n.props[i])
		} else {
			p.skip()
			if !told[n.names.list[i]] { // once, however often it is there
				p.report(func() string { return "duplicate key (send it once)" })
				if told == nil {
					told = map[string]bool{}
				}
				told[n.names.list[i]] = true
			}
		}
		p.trail = p.trail[:len(p.trail)-1]
		next = i + 1
	}
	missing := 0
	for i := range n.props {
		if seen[i/64]&(1<<(i%64)) == 0 && n.props[i].kinds&null == 0 {
			missing++
		}
	}
	if missing > 0 {
		p.missing(n, slices.Clone(seen), missing)
	}
}

// missing notes all keys that an object lacks, as one problem.
func (p *pass) missing(n *node, seen []uint64, count int) {
	absent := func(yield func(string, *node) bool) {
		for i, q := range n.props {
			if seen[i/64]&(1<<(i%64)) == 0 && q.kinds&null == 0 && !yield(n.names.list[i], q) {
				return
			}
		}
	}
	if count == 1 {
		for name, q := range absent {
			p.trail = append(p.trail, crumb{name: name, index: -1})
			p.report(func() string { return "missing (expected " + q.expect() + ")" })
			p.trail = p.trail[:len(p.trail)-1]
		}
		return
	}
	p.report(func() string {
		var list []string
		for name, q := range absent {
			list = append(list, pathName(name)+" ("+q.kinds.String()+")")
		}
		return "missing keys " + strings.Join(list, ", ")
	})
}

func (p *pass) unknown(n *node, name []byte) {
	p.report(func() string {
		problem := "unknown key " + quote(string(name))
		if len(n.props) == 0 {
			return problem + " (no keys are expected)"
		}
		known := make([]string, len(n.props))
		for i, s := range n.names.list {
			if strings.EqualFold(s, string(name)) {
				return problem + " (the key is " + quote(s) + ")"
			}
			known[i] = quote(s)
		}
		return problem + " (known keys are " + clipTo(strings.Join(known, ", "), 400) + ")"
	})
}

// union reads a value that any branch of n may fit. The first byte mostly
// leaves one; otherwise each is tried, once at every position, and if none
// fits, the one with the fewest problems is reported on.
func (p *pass) union(n *node) {
	k := kindAt(p.peek())
	if k == number {
		k |= integer
	}
	var only *node
	several := false
	for _, b := range n.anyOf {
		if b.kinds&k != 0 {
			several = only != nil
			only = b
			if several {
				break
			}
		}
	}
	switch {
	case only == nil:
		p.mismatch(n, p.skip())
		return
	case !several:
		p.value(only)
		return
	}
	start, best, fewest := p.pos, (*node)(nil), 0
	for _, b := range n.anyOf {
		if b.kinds&k == 0 {
			continue
		}
		p.pos = start
		if c := p.try(b); best == nil || c < fewest {
			best, fewest = b, c
		}
		if fewest == 0 {
			break
		}
	}
	p.pos = start
	if fewest == 0 || p.quiet > 0 {
		p.skip()
		p.count += fewest
		return
	}
	if best.expect() != n.expect() && k&(object|array) == 0 {
		p.mismatch(n, p.skip()) // say all that a scalar may be
		return
	}
	p.value(best)
}

// try returns what the problems of the value at the current position count if
// it is held against n.
func (p *pass) try(n *node) int {
	key := attempt{n, p.pos}
	if c, ok := p.tried[key]; ok {
		return c
	}
	before := p.count
	p.quiet++
	p.value(n)
	p.quiet--
	c := p.count - before
	p.count = before
	if p.tried == nil {
		p.tried = map[attempt]int{}
	}
	p.tried[key] = c
	return c
}
