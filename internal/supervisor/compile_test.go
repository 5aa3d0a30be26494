package supervisor

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Cells whose last line shows what they end with are compiled without a tree. They
// become the same as with one.
func TestCellsAreCompiledTheSame(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	cmd := exec.Command(python, "-W", "ignore", "-c", compare, workerSource)
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.Equal(t, "the same\n", string(out))
}

// compare also looks whether what must be plain is.
const compare = `
import sys, types
space = {"__name__": "fnloop"}
exec(compile(sys.argv[1], "<fnloop>", "exec"), space)
own = space["own"]
own.future, own.cell, own.lines, own.kept = 0, 1, {}, 0
space["keep"] = lambda cell, source: None
plain, whole = space["compile_plain"], space["compile_any"]

def parts(code):
    if code is None:
        code = compile("", "<cell>", "exec")  # does nothing
    lines = list(code.co_lines()) if hasattr(code, "co_lines") else code.co_lnotab
    return [code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_flags, code.co_firstlineno, lines,
            [parts(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]]

def same(source):
    """Whether it is plain; where it is, both ways must agree."""
    found = plain(source, "<cell>")
    if found is None:
        return False
    body, value = whole(source, "<cell>")
    if (value is None) != (found[1] is None) or parts(body)[1:] != parts(found[0])[1:] and found[0] is not None \
            or value is not None and parts(value) != parts(found[1]):
        print("differs:", repr(source))
    return True

certain = ["x += 1", "x", "x = 1", "x.y = f(1)", "print(x, 'a')", "[1,\n 2][0]\nx", "\n\nx\n\n", "if a:\n    b", "if a:\n    b\nc",
    "for i in x:\n  print(i)", "import a\nimport b", "from a import (b)", "'doc'\nx", "'doc'\nx = 1", "x: int = 1\nx", "x @ y",
    "x = lambda: 1", "lambda x=1: x", "x == 1", "await x", "await x\nx", "x = await y", "'''a\nb'''\nx", "def f():\n  return 1\nf()", "é"]
unsure = ["[1,\n 2]", "f(\na=1)", "f(\na=1, b=(2))", "f(\n  a)", "f(')',\nx = '(')", "(1 +\n x)", "'''\n;'''", "'''\nx = 1'''", "f('''\nx = 1 ''')",
    "s = '''\n  x\n  y'''", "x;", "x = 1;", "x; y", "5 # x;", "x = 1 # (", "x = \\\n1", "'\\\nx = 1'", "a, *b", "*a, b", "  x", "x\r\ny", "x = 1\rx",
    "@d\ndef f(): pass", "%time x", "!ls", "x?", "else: x", "try:\n a\nexcept: b\nx =", "x = 1\\", "x\\", "from __future__ import annotations\nx",
    "if 1: x", "x[0] = 1", "x if y else z;", "f'{\nx = }'", "f'{\nx =}' + '{'", "return", "1x", "x\u00a0= 1", ""]
for source in certain + unsure:
    for other in (source, "q = 1\n" + source, source + "\nq", source + "\nq = 1", source + "\n  q = 1", source + "\n)\nq = (1)", "f(\n" + source, "f(\n" + source + ")"):
        same(other)
for source in certain:
    if not same(source):
        print("not plain:", repr(source))

print("the same")
`
