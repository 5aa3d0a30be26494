# The worker runs the cells of a session, one after the other, in one namespace.
# It is forked from the supervisor and is no more to be trusted than the cells
# that it runs: whatever they can reach of it is theirs.
#
# Cells may rebind anything. What is used here is bound before the first of them,
# and the builtins are a copy of this module's own.
import _signal
import _thread
import builtins
import os
import sys
import types

MAX_TEXT = 16384
MAX_TRACE = 8192
MAX_SHOWN = 64
MAX_SHOWN_BYTES = 16 << 20
MAX_NAMES = 200
MAX_NAME_BYTES = 4096
KEEP_FILES = 100
KEEP_LINES = 8 << 20
KEEP_CELLS = 1000
CELLS = "/tmp/.cells"
FIGURES = "matplotlib._pylab_helpers"
AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
COROUTINE = 0x80  # inspect.CO_COROUTINE
BLANKS = ("", " ", "\t")
COPIED = b"k\0\0\0\0\0\0\0\4"  # the head of what tells of a copy

close, dup2, dup, fstat, getpid, read, write, exit_now = (
    os.close, os.dup2, os.dup, os.fstat, os.getpid, os.read, os.write, os._exit)
mkdir, open_fd, unlink, getcwd, chdir, O_FLAGS = (
    os.mkdir, os.open, os.unlink, os.getcwd, os.chdir,
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
set_handler, set_mask, valid_signals = _signal.signal, _signal.pthread_sigmask, _signal.valid_signals
SIG_BLOCK, SIG_SETMASK, SIGINT = _signal.SIG_BLOCK, _signal.SIG_SETMASK, _signal.SIGINT
wait_pid, next_signal = os.waitpid, _signal.sigtimedwait
set_trace, set_profile = sys.settrace, sys.setprofile
get_ident, set_group = _thread.get_ident, os.setpgid
the_modules = sys.modules


def number(n):
    return n.to_bytes(4, "big")


def text_bytes(s):
    return s.encode("utf-8", "backslashreplace")


def clip(s, most):
    # Head and tail.
    if len(s) <= most:
        return s
    half = most // 2
    return "%s\n[... %d characters left out ...]\n%s" % (s[:half], len(s) - 2 * half, s[-half:])


class Own:
    """What must not be where a cell could rebind it by accident."""


own = Own()


# Frames.

def tell(kind, body=b""):
    # Two processes that say the same would confuse the supervisor: a child that
    # a cell forked and let run on ends here.
    if getpid() != own.pid:
        exit_now(0)
    try:
        same = fstat(own.events)
    except OSError:  # a cell closed it
        exit_now(71)
    if (same.st_dev, same.st_ino) != own.events_id:
        exit_now(71)
    data = b"".join((kind, number(own.cell), number(len(body)), body))
    # A stop in the middle would leave half a frame: it waits for the end.
    alone = get_ident() != own.thread
    own.telling = own.telling or not alone
    try:
        while data:
            data = data[write(own.events, data):]
    finally:
        if not alone:
            own.telling = False
            if own.stopping:
                own.stopping = False
                on_stop(0, None)


def tell_long(more, last, data):
    at = 0
    while len(data) - at > 65536:
        tell(more, data[at:at + 65536])
        at += 65536
    tell(last, data[at:])


def hear(n):
    while len(own.heard) < n:
        try:
            data = read(own.cells, 65536)
        except OSError:
            exit_now(72)
        if not data:
            exit_now(72)
        own.heard += data
    data = bytes(own.heard[:n])
    del own.heard[:n]
    return data


def flush():
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:
            pass


def show(main, forms):
    """Sends one display: a head with the types and sizes, then the bytes."""
    flush()
    if getpid() != own.pid:
        exit_now(0)
    with own.lock:  # threads show things too
        send_display(main, forms)


def send_display(main, forms):
    size = sum(map(len, forms.values()))
    if own.shown == MAX_SHOWN or own.shown_bytes + size > MAX_SHOWN_BYTES:
        own.omitted += 1
        return
    own.shown += 1
    own.shown_bytes += size
    head = [b"1" if main else b"0"]
    for name, data in forms.items():
        head.append(b"%s %d" % (name.encode(), len(data)))
    tell_long(b"v", b"V", b"\n".join(head) + b"\n\n" + b"".join(forms.values()))


# Signals. The handler is only for code of the cell; at any other time a signal
# that comes late does nothing.

def on_stop(signum, frame):
    if own.telling:
        own.stopping = True
    elif own.task is not None and not own.cancelled:
        own.cancelled = True
        own.loop.call_soon_threadsafe(own.task.cancel)
    elif own.running:
        raise KeyboardInterrupt


def arm():
    for s in (SIGINT, own.stop_signal):
        set_handler(s, on_stop)


# The namespace.

def make_main():
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __doc__=None, __spec__=None, __loader__=None)
    the_modules["__main__"] = main
    own.main, own.space = main, main.__dict__
    own.first_names = set(own.space)


def names():
    found, size = [], 0
    for name, value in list(own.space.items()):
        if type(name) is not str or name[:1] == "_" or type(value) is types.ModuleType:
            continue
        size += len(name) + 1
        if len(found) == MAX_NAMES or size > MAX_NAME_BYTES:
            break
        found.append(name)
    return "\n".join(found)


# Cells.

def file_of(cell):
    return "%s/cell-%d.py" % (CELLS, cell)


def keep(cell, source):
    """Puts the source where tracebacks and inspect look for it."""
    name = file_of(cell)
    lines = [line + "\n" for line in source.split("\n")]
    if name in own.lines:
        if own.lines[name][2] == lines:
            return
        own.kept -= own.lines.pop(name)[0]
    own.lines[name] = (len(source), None, lines, name)
    own.kept += len(source)
    cache = the_modules.get("linecache")
    while (own.kept > KEEP_LINES or len(own.lines) > KEEP_CELLS) and len(own.lines) > 1:
        old = next(iter(own.lines))
        own.kept -= own.lines.pop(old)[0]
        if cache is not None:
            cache.cache.pop(old, None)
    if cache is not None:
        cache.cache[name] = own.lines[name]
    try:
        if len(source) <= 1 << 20:
            try:
                fd = open_fd(name, O_FLAGS, 0o644)
            except FileNotFoundError:
                mkdir(CELLS, 0o755)
                fd = open_fd(name, O_FLAGS, 0o644)
            try:
                data = text_bytes(source)
                while data:
                    data = data[write(fd, data):]
            finally:
                close(fd)
        if cell > KEEP_FILES:
            unlink(file_of(cell - KEEP_FILES))
    except OSError:
        pass


def fill_linecache():
    # Once, when it is there: from then on each cell puts in its own.
    cache = the_modules.get("linecache")
    if cache is not None and cache is not own.linecache:
        own.linecache = cache
        cache.cache.update(own.lines)


def quiet(source, node):
    """Whether a semicolon follows the last expression."""
    lines = text_bytes(source).split(b"\n")
    rest = lines[node.end_lineno - 1:]
    rest[0] = rest[0][node.end_col_offset:]
    for line in rest:
        for c in line:
            if c == 35:  # a comment
                break
            if c == 59:
                return True
            if c not in b" \t\r\f)\\":
                return False
    return False


def parse(source, name):
    flags = AWAIT | own.future | ONLY_AST
    first = None
    for change in (None, dedent, unfence, spaces, magic):
        try:
            changed = source if change is None else change(source, name, flags)
            if changed is not None:
                return changed, compile(changed, name, "exec", flags, True)
        except SyntaxError as err:
            first = first or err
    raise first


def dedent(source, name, flags):
    lines = source.split("\n")
    indents = [line[:len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    if not indents or not indents[0] or not all(i.startswith(indents[0]) for i in indents):
        return None
    n = len(indents[0])
    return "\n".join(line[n:] if line.strip() else line for line in lines)


def unfence(source, name, flags):
    s = source.strip()
    if not (s.startswith("```") and s.endswith("```") and "\n" in s):
        return None
    return s[s.index("\n") + 1:-3]


def spaces(source, name, flags):
    return source.replace("\u00a0", " ") if "\u00a0" in source else None


def magic(source, name, flags):
    """Notebook habits: %matplotlib, %pip and the like, and !command. Only a line
    that Python refuses is taken for one."""
    whole = whole_magic(source)
    if whole is not None:
        return whole
    lines = source.split("\n")
    found = False
    for i in range(200):
        try:
            compile("\n".join(lines), name, "exec", flags, True)
            break
        except SyntaxError as err:
            at = (err.lineno or 0) - 1
            call = magic_call(lines[at].strip(), at) if 0 <= at < len(lines) else None
            if call is None:
                return None
            indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
            lines[at] = indent + call
            found = True
    return "\n".join(lines) if found else None


def whole_magic(source):
    """What a first line makes of all the others."""
    head, _, body = source.strip("\n").partition("\n")
    word, _, more = head.strip().partition(" ")
    more = more.strip()
    if word in ("%%bash", "%%sh"):
        return "__shell__(%r, program=%r);" % (body, word[2:])
    if word in ("%%writefile", "%%file") and more:
        mode = "w"
        if more.startswith("-a "):
            mode, more = "a", more[3:].strip()
        return "open(%r, %r).write(%r);" % (more.strip("'\""), mode, body + "\n")
    return None


def magic_call(line, at):
    mark, rest = line[:1], line[1:].strip()
    word, _, more = rest.partition(" ")
    more = more.strip()
    if mark == "%" and rest[:1] == "%":
        return "pass" if at == 0 and word in ("%time", "%timeit", "%capture", "%python", "%python3") else None
    if mark == "!" and rest:
        return shell(rest)
    target, equals, command = line.partition("=")
    if equals and command.strip()[:1] == "!":
        return "%s = __shell__(%r, lines=True)" % (target.strip(), command.strip()[1:].strip())
    if line.startswith(("pip install ", "pip3 install ")):
        return pip(line.partition(" ")[2])
    if line[-1:] == "?" and line.rstrip("?").replace(".", "").isidentifier():
        return "help(%s);" % line.rstrip("?")
    if mark != "%":
        return None
    if word in ("matplotlib", "load_ext", "reload_ext", "config", "autoreload", "precision", "pylab"):
        return "pass"
    if word == "pip":
        return pip(more)
    if word in ("ls", "cat", "mkdir", "rm", "cp", "mv", "pwd"):
        return shell(rest)
    if word in ("sh", "bash") and more:
        return shell(more)
    if word in ("time", "timeit") and more:
        return more
    if word == "cd" and more:
        return "__import__('os').chdir(%r)" % more
    if word in ("env", "set_env") and "=" in more:
        return "__import__('os').environ.__setitem__(%r, %r);" % tuple(p.strip() for p in more.split("=", 1))
    if word == "run" and more:
        return "exec(compile(open(%r).read(), %r, 'exec'));" % (more, more)
    return None


def pip(arguments):
    return shell("%s -m pip %s" % (sys.executable, arguments))


def shell(command):
    return "__shell__(%r);" % command


def run_shell(command, lines=False, program=None):
    """Runs a command, with {name} and $name replaced by the values of variables
    of the session, and gives its output by lines if they are asked for."""
    import re
    import subprocess

    def value(found):
        if found.group(2) not in own.space:
            return found.group(0)
        try:
            return str(eval(found.group(1) or found.group(2), own.space))
        except Exception:
            return found.group(0)

    flush()
    if program:
        subprocess.run([program, "-c", command])
        return None
    command = re.sub(r"\{(([^\W\d]\w*)[^{}]*)\}", value, command)
    command = re.sub(r"()\$([^\W\d]\w*)", value, command)
    if lines:
        return subprocess.run(command, shell=True, stdout=subprocess.PIPE).stdout.decode(errors="replace").splitlines()
    subprocess.run(command, shell=True)
    return None


def run_cell(source):
    name = file_of(own.cell)
    fill_linecache()
    own.space.pop("__warningregistry__", None)
    if "import" in source:
        # A module that was written within this second is found all the same.
        for folder in (own.dir, sys.path[0] if sys.path else ""):
            finder = sys.path_importer_cache.get(folder)
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()
    keep(own.cell, source)
    body, value = compile_plain(source, name) or compile_any(source, name)
    result = execute(body, value)
    if value is None:
        return
    hook = sys.displayhook
    if hook is not own.displayhook:
        hook(result)
    elif result is not None:
        space = own.space
        if "_" not in space or space["_"] is own.underscore:
            space["_"] = own.underscore = result
        show_value(result, True)


def compile_any(source, name):
    """The code of a cell, but for a last expression, and that of the expression; or
    else None for it."""
    changed, tree = parse(source, name)
    keep(own.cell, changed)
    flags = AWAIT | own.future
    last = None
    if tree.body and type(tree.body[-1]).__name__ == "Expr" and not quiet(changed, tree.body[-1].value):
        last = tree.body.pop()
    body = compile(tree, name, "exec", flags, True)
    if "__future__" in changed:
        import __future__
        for feature in __future__.all_feature_names:
            own.future |= body.co_flags & getattr(__future__, feature).compiler_flag
        flags |= own.future
    if last is None:
        return body, None
    import _ast
    return body, compile(_ast.Expression(last.value), name, "eval", flags, True)


def compile_plain(source, name):
    """The same, of a cell whose last line shows what it ends with, or else None. Most
    are so, and without a tree of the source this takes two thirds of the time."""
    text = source.rstrip(" \t\n")
    head, _, last = text.rpartition("\n")
    if ";" in last or "#" in last or "\r" in source or "\\\n" in source or "__future__" in source:
        return None
    flags = AWAIT | own.future
    try:
        if no_value(last, source):
            return compile(source, name, "exec", flags, True), None
        if last[:1] in BLANKS:
            return None
        # Where both are whole by themselves, one follows upon the other.
        value = compile("\n" * text.count("\n") + last, name, "eval", flags, True)
        return compile(head, name, "exec", flags, True) if head else None, value
    except Exception:
        return None  # the other way says why


def no_value(last, source):
    """Whether a source that ends in this line ends in no expression, for sure."""
    if "'''" in source or '"""' in source:
        return False
    if last[:1] not in BLANKS and not last.startswith(("import ", "from ")):
        target, _, rest = last.partition("=")
        if rest[:1] in ("", "=") or not target.rstrip("+-*/%&|^ ").replace(".", "").isidentifier():
            return False
    # A bracket that was open before would be closed on it.
    depth, text = 0, "'" in last or '"' in last
    for c in last:
        depth += (c in "([{") - (c in ")]}")
        if depth < 0 or depth and text:
            return False
    return True


def execute(body, value):
    if not ((body.co_flags if body else 0) | (value.co_flags if value else 0)) & COROUTINE:
        if body:
            eval(body, own.space)
        return eval(value, own.space) if value else None

    async def both():
        result = None
        for code in (body, value):
            if code is not None:
                result = eval(code, own.space)
                if code.co_flags & COROUTINE:
                    result = await result
        return result

    import asyncio
    if own.loop is None or own.loop.is_closed():
        own.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(own.loop)
    own.cancelled = False
    task = own.loop.create_task(both())
    own.task = task
    try:
        return own.loop.run_until_complete(task)
    except asyncio.CancelledError as err:
        if own.cancelled:
            raise KeyboardInterrupt().with_traceback(err.__traceback__) from None
        raise
    except BaseException:
        # The loop was left in the middle: the task ends before it goes on.
        own.task = None
        if not task.done():
            task.cancel()
            try:
                own.loop.run_until_complete(task)
            except BaseException:
                pass
        raise
    finally:
        own.task = None


def describe(err):
    """The name, the message and the traceback of an exception."""
    kind = type(err)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = "%s.%s" % (kind.__module__, name)
    try:
        value = str(err)
    except BaseException:
        value = "<a message that cannot be shown>"
    try:
        import traceback
        fill_linecache()
        made = traceback.TracebackException(kind, err, err.__traceback__, limit=limit(err), **own.trace_options)
        drop_frames(made, 0)
        lines = list(made.format())
        if not made.stack and lines[0].startswith("Traceback"):
            del lines[0]  # no frame follows
        trace = clip(shorten(lines), MAX_TRACE)
    except BaseException:
        trace = "%s: %s\n" % (name, value) if value else name + "\n"
    return clip(name, 200), clip(value, 4096), trace


def limit(err):
    """How many frames of an exception are looked at: of very many the last."""
    frame, n = err.__traceback__, 0
    while frame is not None and n < 2000:
        frame, n = frame.tb_next, n + 1
    return None if frame is None else -200


def shorten(lines):
    """Keeps of a row of frames the first three and the last twelve."""
    kept, row = [], []
    for line in lines + [""]:
        if line.startswith("  File ") or line.startswith("  [Previous line"):
            row.append(line)
            continue
        if len(row) > 16:
            row = row[:3] + ["  [... %d frames left out ...]\n" % (len(row) - 15)] + row[-12:]
        kept += row + [line]
        row = []
    return "".join(kept)


def drop_frames(made, depth):
    """Takes our own frames off a traceback and those of its causes."""
    if made is None or depth > 100:
        return
    made.stack[:] = [f for f in made.stack if f.filename != "<fnloop>"]
    for inner in getattr(made, "exceptions", None) or ():
        drop_frames(inner, depth + 1)
    drop_frames(made.__cause__, depth + 1)
    drop_frames(made.__context__, depth + 1)


def field(key, data):
    data = text_bytes(data)
    return key + number(len(data)) + data


def report(status, err=None):
    body = field(b"s", status) + field(b"g", names())
    if err is not None:
        name, value, trace = err
        body += field(b"n", name) + field(b"v", value) + field(b"t", trace)
    threading = the_modules.get("threading")
    if threading is not None:
        try:
            body += field(b"h", str(len(threading._active) - 1))
        except Exception:
            pass
    if own.omitted:
        body += field(b"o", str(own.omitted))
    if own.loop is not None:
        try:
            import asyncio
            body += field(b"a", str(len(asyncio.all_tasks(own.loop))))
        except Exception:
            pass
    return body


def one_cell(source):
    """Runs a cell and gives what is said of it."""
    err = None
    status = "ok"
    arm()
    own.images = own.omitted = own.shown = own.shown_bytes = 0
    own.seen.clear()
    try:
        try:
            # A signal that came between two cells is for neither.
            while next_signal(own.all_signals, 0):
                pass
            own.running = True
            set_mask(SIG_SETMASK, ())
            try:
                run_cell(source)
            finally:
                for unset in set_profile, set_trace:
                    try:
                        unset(None)
                    except BaseException:  # the cell's profiler, which is off now
                        unset(None)
        except SystemExit as e:
            if e.code is not None and e.code != 0:
                status, err = "error", describe(e)
        except BaseException as e:
            status = "error"
            err = describe(e)
        if getpid() != own.pid:
            leave_child(err)
        if FIGURES in the_modules:
            show_figures()
    except BaseException as e:
        # While the exception, or the figures, were made ready.
        status = "error"
        own.running = False
        if err is None:
            err = describe(e)
    finally:
        own.running = False
        set_mask(SIG_BLOCK, own.all_signals)
        own.seen.clear()
        if own.space.get("_") is not own.underscore:
            own.underscore = None  # it is nobody's any more
    return report(status, err)


def leave_child(err):
    """Ends a child that a cell forked and that came to the end of the cell."""
    if err:
        sys.stderr.write(err[2])
    flush()
    exit_now(1 if err else 0)


def mend():
    """Puts back what a cell has replaced or closed and the next one needs."""
    for space, first in ((builtins.__dict__, own.builtins), (sys.__dict__, own.sys)):
        if len(space) < len(first):  # some are gone
            for name, value in first.items():
                space.setdefault(name, value)
    for i, (fd, identity) in enumerate(own.streams):
        try:
            now = fstat(i)
            if (now.st_dev, now.st_ino) == identity:
                continue
        except OSError:
            pass
        try:
            dup2(fd, i, True)
        except OSError:
            pass
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = own.std
    try:
        i, o, e = own.std
        whole = not (i.closed or o.closed or e.closed)
    except ValueError:  # its buffer was taken away
        whole = False
    if not whole:
        make_streams()
    sys.displayhook, sys.excepthook = own.displayhook, sys.__excepthook__
    if the_modules.get("__main__") is not own.main:
        the_modules["__main__"] = own.main
    own.space["__builtins__"] = builtins
    own.space["__name__"] = "__main__"
    try:
        getcwd()
    except OSError:
        try:
            chdir(own.dir)
        except OSError:
            pass


def make_streams():
    import io
    std = []
    for fd, mode, errors in ((0, "r", "surrogateescape"), (1, "w", "backslashreplace"), (2, "w", "backslashreplace")):
        raw = io.FileIO(fd, mode, closefd=False)
        if mode == "r":
            f = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", errors)
        else:
            f = io.TextIOWrapper(io.BufferedWriter(raw, 8192), "utf-8", errors, line_buffering=True)
        f.mode = mode
        std.append(f)
    for f, name in zip(std, ("<stdin>", "<stdout>", "<stderr>")):
        f.buffer.raw.name = name
    own.std = std
    sys.stdin, sys.stdout, sys.stderr = std
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = std


def no_input(prompt="", /):
    if prompt != "":
        print(prompt, end="")
    raise EOFError("there is no user at this prompt: put the value into the code")


def no_debugger(*args, **kwargs):
    raise EOFError("there is no user at this debugger: print what you want to see")


def make_copy():
    """Makes a stopped copy of this process, which the supervisor may wake."""
    if not own.clone:
        return tell(b"k", number(0))
    ctypes, syscall = own.syscall
    # It is the supervisor's child and not ours: a cell that waits for its
    # children is not to meet it. No hook of Python's runs, which would give it
    # other random numbers; there is one thread, so that no lock is held.
    parent_and_signal = 0x8000 | 17
    join_group(1)  # the supervisor's: what the next cell does to its own is not for the copy
    pid = ctypes.call_function(syscall, (own.clone, parent_and_signal, 0, 0, 0, 0))
    if pid != 0:
        join_group(0)
        write(own.events, COPIED + number(max(pid, 0)))
        return
    # What a copy does before it is woken costs it pages of its own. The
    # supervisor does the rest for it.
    try:
        while not read(own.go, 1):
            exit_now(0)
        own.pid = getpid()
        join_group(0)
        del own.heard[:]  # a cell that was sent meanwhile is the other's
        adjust(300)
        # What came for everybody in the meantime is not for this one.
        while next_signal(own.all_signals, 0):
            pass
        mend()
        tell(b"r")
    except BaseException:
        exit_now(73)


def join_group(group):
    try:
        set_group(0, group)
    except OSError:  # a cell has begun a session
        pass


def touch():
    """Does what every cell does, for nothing. Each page that is written to for the
    first time after a copy was made costs time, which is better spent while
    nobody waits."""
    source, space = "touch = [0]\ntouch", {"__builtins__": builtins}
    tree = parse(source, "<fnloop>")[1]
    quiet(source, tree.body[1].value)
    for code in (tree, source):
        no_value("touch = [0]", source)
        eval(compile(code, "<fnloop>", "exec", AWAIT, True), space)
    eval(compile("\ntouch", "<fnloop>", "eval", AWAIT, True), space)
    text_of([0])
    report("ok")
    mend()


def adjust(more):
    try:
        fd = open_fd("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            write(fd, b"%d" % min(1000, (own.score or 0) + more))
        finally:
            close(fd)
    except OSError:
        pass


def after_fork():
    # A child of a cell's has nothing to say to the supervisor.
    for fd in (own.cells, own.events, own.go):
        try:
            close(fd)
        except OSError:
            pass


def work(cells, events, go, folder, score, stop_signal, trace_signal, syscall):
    own.cells, own.events, own.go, own.dir, own.score = cells, events, go, folder, score
    own.stop_signal, own.syscall = stop_signal, syscall
    own.clone = {"x86_64": 56, "aarch64": 220, "riscv64": 220}.get(os.uname().machine)
    s = fstat(events)
    own.events_id = (s.st_dev, s.st_ino)
    own.pid, own.cell, own.heard, own.thread = getpid(), 0, bytearray(), get_ident()
    own.running = own.cancelled = own.telling = own.stopping = False
    own.seen = {}
    own.task = own.loop = own.underscore = own.linecache = None
    own.lock = _thread.allocate_lock()
    own.lines, own.kept = {}, 0
    own.future = 0
    own.trace_options = {"compact": True} if sys.version_info >= (3, 10) else {}
    own.all_signals = set(valid_signals()) - {_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGSEGV, _signal.SIGBUS,
                                              _signal.SIGFPE, _signal.SIGILL, _signal.SIGABRT, _signal.SIGCHLD,
                                              trace_signal}
    own.displayhook = sys.displayhook
    sys.excepthook = sys.__excepthook__
    make_streams()
    own.streams = []
    for i in range(3):
        s = fstat(i)
        own.streams.append((dup(i), (s.st_dev, s.st_ino)))
    make_main()
    try:
        chdir(folder)
    except OSError:
        pass
    sys.path.insert(0, folder)
    sys.argv[:] = [""]
    builtins.__dict__.update(input=no_input, display=display, __shell__=run_shell)
    own.builtins, own.sys = dict(builtins.__dict__), dict(sys.__dict__)
    sys.breakpointhook = no_debugger
    os.register_at_fork(after_in_child=after_fork)
    sys.meta_path.insert(0, Hook())
    prepare_loaded()
    try:
        import faulthandler
        faulthandler.register(trace_signal, file=2, all_threads=False, chain=False)
    except Exception:
        pass
    the_modules.pop("sitecustomize", None)
    set_mask(SIG_BLOCK, own.all_signals)
    tell(b"r")
    while True:
        try:
            head = hear(9)
            own.cell = int.from_bytes(head[1:5], "big")
            body = hear(int.from_bytes(head[5:9], "big"))
            if head[:1] == b"K":
                make_copy()
                continue
            if head[:1] == b"T":
                touch()
                continue
            if head[:1] == b"W":
                for at in range(0, len(body), 4):
                    try:
                        wait_pid(int.from_bytes(body[at:at + 4], "big"), 1)
                    except OSError:
                        pass
                continue
            source = body.decode()
            del body
            try:
                said = one_cell(source)
            except BaseException as e:
                # A handler of the cell's struck while its end was made ready.
                said = report("error", describe(e))
            del source
            flush()
            tell_long(b"c", b"D", said)
            mend()  # while the supervisor finds out what is to be known
        except BaseException:
            # A handler of a cell's own can strike at any time.
            if getpid() != own.pid:
                exit_now(1)
