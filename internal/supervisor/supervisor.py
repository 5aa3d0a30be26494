# The supervisor runs as the first process of a sandbox. The interpreter that
# is to run /tmp/main.py imports it as its sitecustomize module, which is the
# last thing an interpreter does before it opens the program's file. There it
# waits for a program, writes the file and forks: the child leaves the import
# as if there had been no such module and goes on to run the file, with not one
# frame or name of ours below it, while the parent stays here for good.
#
# Frames are a byte of kind, four of length in big-endian, and the payload.
# They come on descriptor 0 and go on descriptor 1. The program has neither: it
# gets pipes of its own, and this process is not dumpable, so that no process
# of the sandbox can open its descriptors or its memory through /proc. As the
# first process of its namespace it is also deaf to every signal it does not
# handle, SIGKILL included. One that was forked from a template (template.py)
# has no number there at all: only the program and what it starts are within.
import os
import sys


def supervise():
    import _ctypes
    import _signal
    import resource
    import select
    import time

    home = os.path.dirname(__file__)
    # A virtual environment with packages, if there is one, and what the host wants
    # to be imported.
    layer = "/opt/fnloop/python"
    preload = [m for m in os.environ.get("FNLOOP_PRELOAD", "").split(",") if m]
    ahead = [line.split("=") for line in os.environ.get("FNLOOP_RLIMITS", "").split()]

    # What the program may see of the environment, whatever an engine or an
    # image adds to it.
    environment = (
        "HOME LANG MPLBACKEND MPLCONFIGDIR NO_COLOR OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH "
        "PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONUTF8 TMPDIR TZ"
    ).split()

    def send(kind, *parts):
        put(b"".join((kind, sum(map(len, parts)).to_bytes(4, "big"), *parts)))

    def put(data):
        try:
            n = os.write(1, data)
            while n < len(data):
                data = data[n:]
                n = os.write(1, data)
        except OSError:
            leave()

    def leave():
        kill_all()
        os._exit(1)

    # What a child of a template (template.py) has, whose sandbox is not the one that it
    # began in: descriptors, of which the first is that of the sandbox's first process,
    # and, by name, what takes the place of the functions below.
    held, apart = [], {}

    def kill_others():
        # Kills all processes that this one can see but the first.
        try:
            os.kill(-1, _signal.SIGKILL)
        except OSError:
            pass

    def kill_all():
        # Kills all processes of the sandbox but this one.
        apart.get("kill_all", kill_others)()

    def clear():
        # Kills all processes of the sandbox, which goes on.
        apart.get("clear", kill_others)()

    def fork():
        return apart.get("fork", os.fork)()

    def fail(text):
        send(b"F", str(text).encode("utf-8", "backslashreplace"))
        leave()

    def exactly(n):
        parts = []
        while n > 0:
            part = os.read(0, min(n, 1 << 20))
            if not part:
                leave()
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def receive():
        head = exactly(5)
        return head[:1], exactly(int.from_bytes(head[1:], "big"))

    def ooms():
        # Version 2 of cgroups has the first file, version 1 the second.
        for name in ("memory.events", "memory/memory.oom_control"):
            try:
                with open("/sys/fs/cgroup/" + name) as f:
                    for line in f:
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
            except (OSError, ValueError):
                pass
        return None

    def become(stdin, stdout, stderr, others, score):
        # Makes of a child of this process one that may run a program: with
        # streams of its own and without the other descriptors, under the limits,
        # and to be killed for want of memory before this process by its score.
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for fd in others:
            try:
                os.close(fd)
            except OSError:
                # It was closed already.
                pass
        if not early:
            leave_supervisor()
            if not foreign:
                import_all()
        bound(config)
        try:
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write(str(score))
        except OSError:
            pass

    def bound(limits):
        for key, value in limits.items():
            if key.startswith("rlimit_"):
                limit = getattr(resource, key.upper())
                hard = resource.getrlimit(limit)[1]
                if hard != resource.RLIM_INFINITY:
                    value = min(value, hard)
                resource.setrlimit(limit, (value, value))

    def leave_supervisor():
        # Takes from a child what is of this process, once it has none of its
        # descriptors: from here on other processes may look at it.
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        # What the host program ignores, as one started by nohup does, is
        # no matter of the program's.
        for number in range(1, _signal.NSIG):
            if number in (_signal.SIGPIPE, _signal.SIGXFSZ):
                continue
            try:
                if _signal.getsignal(number) == _signal.SIG_IGN:
                    _signal.signal(number, _signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        os.umask(0o022)
        if _ctypes.call_function(prctl, (dumpable, 1, 0, 0, 0)) != 0:
            raise OSError("prctl(PR_SET_DUMPABLE) failed")
        for name in list(os.environ):
            if name not in environment:
                del os.environ[name]
        if os.path.exists(layer + "/pyvenv.cfg"):
            os.environ["PATH"] = layer + "/bin:" + os.environ.get("PATH", "/usr/bin:/bin")
        sys.path[:] = [p for p in sys.path if p != home]
        sys.path_importer_cache.pop(home, None)

    def enter_layer():
        # What the interpreter of the layer does when it starts. This process
        # never does it: the layer's path files can hold code.
        import site
        own = "%s/lib/python%d.%d/site-packages" % ((layer,) + sys.version_info[:2])
        others = site.getsitepackages()
        at = next((i for i, p in enumerate(sys.path) if p in others), len(sys.path))
        after = sys.path[at:]
        del sys.path[at:]
        sys.executable = layer + "/bin/python3"
        sys.prefix = sys.exec_prefix = layer
        site.PREFIXES.insert(0, layer)
        site.addsitedir(own)
        sys.path += [p for p in after if p not in sys.path]

    def import_all():
        if os.path.exists(layer + "/pyvenv.cfg"):
            enter_layer()
        for name in preload:
            __import__(name)

    # Modules that are to be there before the program are imported by the process
    # that becomes it, so that whatever they start or remember stays theirs. The
    # process is forked early, and waits to be told what to become.
    early = False

    def start_early():
        nonlocal early
        import _socket
        ours, theirs = _socket.socketpair()
        pid = fork()
        if pid:
            theirs.close()
            said = b""
            while not said.endswith(b"\0"):
                part = ours.recv(65536)
                if not part:
                    fail("Preload: the interpreter ended, with wait status %d, while it imported %s" % (
                        os.waitpid(pid, 0)[1], ", ".join(preload)))
                said += part
            if said != b"\0":
                fail("Preload: " + said[:-1].decode("utf-8", "replace"))
            return pid, ours
        early = True
        try:
            ours.close()
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            os.close(null)
            leave_supervisor()
            bound({key: int(value) for key, value in ahead})
            said = ""
            try:
                import_all()
            except BaseException as err:
                said = "%s: %s" % (type(err).__name__, err)
            theirs.sendall(said.encode("utf-8", "backslashreplace").replace(b"\0", b"") + b"\0")
            return 0, theirs
        except BaseException:
            os._exit(70)

    def tell_early(job, fds):
        # Has the process that waits become what job says, with copies of fds.
        import _socket
        import marshal
        pid, ours = waiting.pop()
        data = marshal.dumps((config, job))
        try:
            ours.sendmsg([len(data).to_bytes(4, "big")], [
                (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))])
            ours.sendall(data)
        except OSError as err:
            fail("the process that has imported the modules of Preload is gone: %s" % err)
        ours.close()
        return pid

    def hear_early(theirs):
        import _socket
        import marshal
        head, rights, flags, address = theirs.recvmsg(4, _socket.CMSG_SPACE(4 * 8), _socket.MSG_CMSG_CLOEXEC)
        fds = []
        for level, kind, data in rights:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(data[i:i + 4], sys.byteorder) for i in range(0, len(data), 4)]
        if len(head) < 4:
            os._exit(70)
        size, data = int.from_bytes(head, "big"), b""
        while len(data) < size:
            part = theirs.recv(1 << 20)
            if not part:
                os._exit(70)
            data += part
        theirs.close()
        told, job = marshal.loads(data)
        config.update(told)
        return job, fds

    def serve_cells(job, fds, others):
        # Makes of a child the worker of a session, which never returns.
        code, folder, score, stop, trace = job
        null, out, err, cells, events, go = fds
        become(null, out, err, others, min(1000, (score or 0) + 300))
        os.environ["HOME"] = folder
        os.setpgid(0, 0)
        import marshal
        worker = marshal.loads(code)
        space = {"__builtins__": dict(__builtins__ if isinstance(__builtins__, dict) else __builtins__.__dict__),
                 "__name__": "fnloop"}
        exec(worker, space)
        space["work"](cells, events, go, folder, score, stop, trace,
                      (_ctypes, _ctypes.dlsym(_ctypes.dlopen(None, 2), "syscall")))

    def tidy():
        if home.startswith("/tmp/") and os.path.exists(__file__):
            try:
                os.unlink(__file__)
                os.rmdir(home)
            except OSError as err:
                fail(err)

    def reached():
        # Whether memory was refused for this sandbox's own limit. It is taken in
        # pieces of less than a mebibyte.
        def read(name):
            with open("/sys/fs/cgroup/" + name) as f:
                return f.read()

        try:
            return int(dict(map(str.split, read("memory.events").splitlines()))["oom"]) > 0
        except (OSError, ValueError, KeyError):
            pass
        try:
            most = int(read("memory/memory.max_usage_in_bytes"))
            return most > int(read("memory/memory.limit_in_bytes")) - (1 << 20)
        except (OSError, ValueError):
            return True

    # Whatever else was inherited could lead out of the sandbox.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                pass

    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")
    dumpable = 4
    if _ctypes.call_function(prctl, (dumpable, 0, 0, 0, 0)) != 0:
        fail("prctl(PR_SET_DUMPABLE) failed")
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

    config = {}
    waiting = []
    foreign = False
    while True:
        if preload or held:
            tidy()
            pid, socket = start_early()
            if pid == 0:
                try:
                    job, fds = hear_early(socket)
                    if job is None:
                        become(*fds, fds, 1000)
                        if "socket" not in sys.modules:
                            sys.modules.pop("_socket", None)
                        return
                    serve_cells(job, fds, fds[:3])
                except BaseException:
                    pass
                os._exit(70)
            waiting.append((pid, socket))

        version = "%d.%d.%d" % sys.version_info[:3]
        send(b"R", ("python=%s\n" % version).encode())

        kind, body = receive()
        if kind != b"N" or held:
            break
        # It becomes a template. What returns here is a child of it, in a sandbox.
        exec(compile(body, "<fnloop>", "exec"), {**globals(), **locals()})

    if kind == b"C":
        for line in body.decode().splitlines():
            key, _, value = line.partition("=")
            config[key] = int(value)
        kind, body = receive()
    if kind == b"B":
        # A session: the rest of what the supervisor does for one comes with it.
        tidy()
        import marshal
        code = marshal.loads(body) if body[:1] != b"\n" else compile(body, "<fnloop>", "exec")
        exec(code, {**globals(), **locals()})
    # A foreign program, which is not Python's, is run by commands, one after the
    # other.
    file, variables, steps = "/tmp/main.py", [], []
    if kind == b"L":
        foreign = True
        head, *steps = [part.decode().split("\0") for part in body.split(b"\1")]
        file, *variables = head
        kind, body = receive()
    if kind != b"P":
        fail("a frame of kind %r where the program was expected" % kind)
    try:
        # What modules of Preload have left there may lead to this process's own
        # descriptors.
        if os.path.lexists(file):
            os.unlink(file)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with open(fd, "wb") as f:
            f.write(body)
    except OSError as err:
        fail("%s: %s" % (file, err))
    del body
    tidy()

    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    wake_r, wake_w = os.pipe()
    os.set_blocking(in_w, False)
    os.set_blocking(wake_w, False)
    os.set_blocking(wake_r, False)
    _signal.signal(_signal.SIGCHLD, lambda *args: None)
    _signal.set_wakeup_fd(wake_w)
    before = ooms()

    # The host holds the clock. Should it be late, or its word not get through,
    # the program ends here all the same, and even while a write blocks: by the
    # alarm. Whoever else sends that signal changes nothing.
    limit = config.get("time_ms", 0)
    start = time.monotonic()
    deadline = start + limit / 1000 + 0.25 if limit else None
    expired = False
    status = None

    def expire(*args):
        nonlocal expired
        if status is None and not expired and time.monotonic() >= deadline:
            expired = True
            kill_all()

    # A timer takes no more than some years.
    if deadline is not None and limit < 1 << 36:
        _signal.signal(_signal.SIGALRM, expire)
        _signal.setitimer(_signal.ITIMER_REAL, limit / 1000 + 0.26)

    theirs = [in_r, out_w, err_w]

    def begin():
        # Starts the program, or the next of its steps; those before the last have
        # no input. It gives 0 in a child that is to become the program.
        command = steps.pop(0) if steps else None
        try:
            pid = tell_early(None, (in_r, out_w, err_w)) if waiting and not foreign else fork()
        except OSError as err:
            fail("fork: %s" % err)
        if pid == 0:
            try:
                stdin = os.open("/dev/null", os.O_RDONLY) if steps else in_r
                become(stdin, out_w, err_w, range(3, wake_w + 1), 1000)
                if command:
                    execute(command)
            except BaseException:
                os._exit(70)
        elif not steps:
            forget()
        return pid

    def execute(command):
        # A shell would not have these ignored either.
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
        _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
        for variable in variables:
            name, _, value = variable.partition("=")
            os.environ[name] = value
        try:
            os.execvp(command[0], command)
        except OSError as err:
            os.write(2, ("%s cannot be run: %s\n" % (command[0], err.strerror)).encode())
            os._exit(126)

    def forget():
        # What the program has is closed here, or its end would not be seen.
        while theirs:
            os.close(theirs.pop())

    if foreign and waiting:
        pid, socket = waiting.pop()
        os.kill(pid, _signal.SIGKILL)
        os.waitpid(pid, 0)
        socket.close()
    program = begin()
    if program == 0:
        return
    send(b"S")

    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake_r, select.POLLIN)
    poll.register(out_r, select.POLLIN)
    poll.register(err_r, select.POLLIN)
    streams = {out_r: b"O", err_r: b"E"}
    pending = b""
    childless = False
    # What has to end as well where this process is not the first of the sandbox.
    last = held[:1]

    while streams or not childless:
        wait = None
        if deadline is not None:
            wait = deadline - time.monotonic()
            if wait <= 0:
                if status is not None or expired:
                    break
                expire()
                continue
            # poll takes no more than a few weeks.
            wait = min(wait, 3600) * 1000 + 1
        for fd, event in poll.poll(wait):
            if fd == 0:
                if not event & select.POLLIN:
                    leave()
                kind, body = receive()
                if in_w is None:
                    pass
                elif kind == b"I" and body:
                    pending = body
                    poll.register(0, 0)
                    poll.register(in_w, select.POLLOUT)
                elif kind == b"I":
                    os.close(in_w)
                    in_w = None
            elif fd == in_w:
                try:
                    pending = pending[os.write(in_w, pending):]
                except BlockingIOError:
                    continue
                except OSError:
                    pending = b""
                    poll.unregister(in_w)
                    poll.register(0, select.POLLIN)
                    os.close(in_w)
                    in_w = None
                    continue
                if not pending:
                    poll.unregister(in_w)
                    poll.register(0, select.POLLIN)
            elif fd == wake_r:
                try:
                    os.read(wake_r, 4096)
                except BlockingIOError:
                    pass
            elif fd in streams:
                data = os.read(fd, 65536)
                if data:
                    send(streams[fd], data)
                else:
                    poll.unregister(fd)
                    del streams[fd]
            elif fd in last:
                poll.unregister(fd)
                last.clear()

        # Every orphan of the sandbox is ours to bury.
        while not childless:
            try:
                pid, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                childless = not last
                break
            if pid == 0:
                break
            if pid == program and how == 0 and steps and not expired:
                clear()
                program = begin()
            elif pid == program:
                forget()
                status = how
                took = time.monotonic() - start
                if not expired:
                    send(b"X", ("status=%d\nus=%d\n" % (how, took * 1e6)).encode())
                # The others end with the program, and with them the last
                # writers of its pipes.
                kill_all()
                for fd in last:
                    poll.register(fd, select.POLLIN)
                deadline = time.monotonic() + 0.5

    # Should this process have had no turn since the end, the pipes still hold
    # output. They hold no more than a mebibyte each, whoever still writes.
    for fd in streams:
        os.set_blocking(fd, False)
        for i in range(16):
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            send(streams[fd], data)
    if expired:
        send(b"T")
        leave()
    after = ooms()
    if before is None or after is None:
        send(b"D")
    else:
        kills = after - before
        send(b"D", b"oom=%d\nreached=%d\n" % (kills, kills > 0 and reached()))
    os._exit(0)


# An interpreter goes on behind a module of this name that fails, to the program:
# within this process, which may be outside of the sandbox, and with its descriptors.
try:
    supervise()
except BaseException as err:
    try:
        os.write(2, ascii(err).encode())
    finally:
        os._exit(1)
del sys.modules["sitecustomize"]
try:
    import sitecustomize
except ImportError as err:
    if err.name != "sitecustomize":
        raise
    raise ImportError(name="sitecustomize") from None
