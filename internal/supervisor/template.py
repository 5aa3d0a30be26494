# A template is a supervisor that is given no program. It waits in a sandbox of
# its own, the nursery, and is forked for each program: the child has bubblewrap
# make the program's sandbox within the nursery, enters it, and goes on as the
# supervisor of that. So the interpreter, and the modules that are imported ahead,
# are started once.
#
# This runs within supervise(), as a frame that the host sends. It returns in
# children alone.


def serve():
    import atexit
    import gc
    import _socket
    for name in "atexit", "gc", "_socket":  # a program is to find what it would find otherwise
        sys.modules.pop(name)
    apart["kill_all"] = lambda: None  # the template is not alone in the nursery

    call = _ctypes.call_function
    library = _ctypes.dlopen(None, 2)
    syscall, setns, capset, mount, ioctl = (
        _ctypes.dlsym(library, name) for name in ("syscall", "setns", "capset", "mount", "ioctl"))
    pidfd_send_signal, pidfd_open = 424, 434
    # Namespaces: of users, mounts, processes, the network, IPC, names, and cgroups.
    spaces = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000

    # What the host says first: the filter of system calls, the modules to import
    # here, and those that each child is to import in its sandbox.
    filter = receive()[1]
    own = [m for m in receive()[1].decode().split(",") if m]
    theirs = [m for m in receive()[1].decode().split(",") if m]

    # A template that had the number which programs have in their sandboxes would
    # fool whatever knows a fork by its number.
    pid = os.fork()
    if pid:
        for fd in range(3):
            os.close(fd)
        os.waitpid(pid, 0)
        os._exit(0)

    control = _socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)

    def tell(kind, text):
        body = text.encode("utf-8", "backslashreplace")[:4096]
        control.sendall(kind + len(body).to_bytes(4, "big") + body)

    def refuse(text):
        tell(b"F", text)
        os._exit(1)

    def state():
        with open("/proc/self/maps") as f:
            shared = sorted(line.split(None, 5)[-1] for line in f if line.split()[1][1::2] == "ws")
        return {
            "descriptors": sorted(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
            "shared memory": shared,
            "its folder": os.getcwd(),
        }

    def children():
        try:
            os.waitpid(-1, os.WNOHANG)
            return True
        except ChildProcessError:
            return False

    def inside(top):
        # What is in a folder, without what is mounted there.
        device = os.lstat(top).st_dev
        found = []
        for folder, folders, names in os.walk(top):
            folders[:] = [f for f in folders if os.lstat(folder + "/" + f).st_dev == device]
            found += [folder + "/" + name for name in folders + names]
        return found

    def left(paths, most):
        # What the modules have left in /tmp, where their programs are to find it.
        found = []
        for path in paths:
            kind = os.lstat(path).st_mode
            if kind & 0o170000 == 0o040000:
                found.append((path, kind & 0o7777, None))
            elif kind & 0o170000 == 0o100000:
                with open(path, "rb") as f:
                    data = f.read(most + 1)
                most -= len(data)
                if most < 0:
                    raise ValueError("%s is more than is copied" % path)
                found.append((path, kind & 0o7777, data))
            else:
                raise ValueError("%s is no file" % path)
        return found

    # Whatever a module starts or opens would be there for all programs. One that does
    # is imported by each program's own process.
    files = []
    if own:
        there = set(inside("/tmp"))
        before = state()
        known = set(sys.modules)
        kept = []
        kept.append(kept)  # which nothing collects once it is frozen

        def keep():
            # To take apart at the end of a program what it did not even use would copy most
            # of it, and take longer than many programs. So these modules are not: the
            # interpreter does next what is done here, and then frees them.
            for name in list(sys.modules):
                if name in loaded:
                    kept.append(sys.modules[name])
                    sys.modules[name] = None

        loaded = set()
        atexit.register(keep)  # before those of the modules, so it is called after them
        try:
            for name in own:
                __import__(name)
            loaded.update(set(sys.modules) - known)
            sys.stdout.flush()
            sys.stderr.flush()
            after = state()
            files = left([path for path in inside("/tmp") if path not in there], 1 << 20)
        except BaseException as err:
            refuse("%s: %s" % (type(err).__name__, err))
        for what in before:
            if before[what] != after[what]:
                refuse("%s: %s before the modules of Preload, %s after" % (what, before[what], after[what]))
        if children():
            refuse("the modules of Preload have started processes")

    # Children are nobody's to wait for.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    tell(b"R", "python=%d.%d.%d\n" % sys.version_info[:3])

    def get(n):
        data = b""
        while len(data) < n:
            part = control.recv(n - len(data))
            if not part:
                os._exit(0)
            data += part
        return data

    def request():
        head, rights, flags, address = control.recvmsg(4, _socket.CMSG_SPACE(4 * 4), _socket.MSG_CMSG_CLOEXEC)
        if not head:
            os._exit(0)
        head += get(4 - len(head))
        fds = []
        for level, kind, data in rights:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(data[i:i + 4], sys.byteorder) for i in range(0, len(data), 4)]
        return get(int.from_bytes(head, "big")), fds

    def renew():
        # Random numbers that came with the fork would be those of other programs.
        # Python's own hook has done it for its random module.
        module = sys.modules.get("numpy.random")
        if module:
            module.seed()
        module = sys.modules.get("_ssl")
        if module:
            module.RAND_add(os.urandom(64), 64.0)
        module = sys.modules.get("tempfile")
        if module:
            module._name_sequence = None
        module = sys.modules.get("multiprocessing.process")
        if module:
            module.current_process().authkey = os.urandom(32)

    def instead(own, live_w, bwrap):
        # Gives the child what it has to do in another way than the first process of a
        # sandbox.
        held[:] = own, live_w

        def kill_all():
            call(syscall, (pidfd_send_signal, own, int(_signal.SIGKILL), 0, 0))

        def clear():
            # A process within does it, which one of them may kill.
            for i in range(16):
                pid = fork()
                if pid == 0:
                    try:
                        kill_others()
                    finally:
                        os._exit(0)
                if os.waitpid(pid, 0)[1] == 0:
                    break

        def fork():
            # Signals for a group know no namespaces, so a child gets out of this
            # process's own before it runs anything.
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(w)
                    if os.read(r, 1) != b"\0":
                        os._exit(70)
                    os.close(r)
                    for fd in held:
                        os.close(fd)
                    renew()
                except BaseException:
                    os._exit(70)
                return 0
            os.close(r)
            os.setpgid(pid, bwrap)
            os.write(w, b"\0")
            os.close(w)
            return pid

        apart.update(kill_all=kill_all, clear=clear, fork=fork)

    def cover(first, masked, fixed):
        # The mounts are those of the user namespace in which bwrap made them. The
        # process within, which has one below that, is entered afterwards.
        space = os.open("/proc/%d/ns/mnt" % first, os.O_RDONLY | os.O_CLOEXEC)
        owner = call(ioctl, (space, 0xb701))  # NS_GET_USERNS
        if owner < 0 or call(setns, (owner, 0x10000000)) != 0 or call(setns, (space, 0x00020000)) != 0:
            raise OSError("the mounts of the sandbox cannot be entered")
        os.close(owner)
        os.close(space)
        # MS_BIND, then with MS_REMOUNT, read-only and without set-user-ID files and devices.
        for names, source in (masked, "/dev/null"), (fixed, None):
            for name in names:
                if not os.path.lexists(name):
                    continue
                target = name.encode()
                if (call(mount, ((source or name).encode(), target, None, 0x1000, None)) != 0
                        or call(mount, (None, target, None, 0x1027, None)) != 0):
                    raise OSError("%s cannot be covered" % name)

    def enter(command, fds, masked, fixed):
        # Its own session, or it would share a turn of the processor, and signals, with
        # other programs.
        os.setsid()
        control.close()
        os.dup2(fds[0], 0)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        for fd in fds:
            os.close(fd)
        link = _socket.socket(fileno=0)

        def show(fd):
            link.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))])

        # The host puts this process under the limits of the program, and with it all
        # that it starts.
        me = call(syscall, (pidfd_open, os.getpid(), 0))
        if me < 0:
            fail("pidfd_open failed")
        show(me)
        os.close(me)
        if os.read(0, 1) != b"\0":
            os._exit(0)

        def expect(fd, *others):
            wait = select.poll()
            wait.register(fd, select.POLLIN)
            for other in others:
                wait.register(other, select.POLLIN)
            wait.register(0, 0)
            found = wait.poll(20000)
            if len(found) != 1 or found[0][0] != fd or not found[0][1] & select.POLLIN:
                raise OSError("bwrap made no sandbox")

        info_r, info_w = os.pipe()
        live_r, live_w = os.pipe()
        up_r, up_w = os.pipe()
        filter_r, filter_w = os.pipe()
        os.write(filter_w, filter)
        os.close(filter_w)
        os.set_inheritable(info_w, True)
        os.set_inheritable(filter_r, True)
        # The first process of the sandbox copies what it reads, and ends when there is
        # no more to come. That it ignores SIGCHLD, as bwrap was told to, has the kernel
        # bury the orphans of the sandbox.
        bwrap = os.posix_spawn(
            command[0], [command[0], "--seccomp", str(filter_r), "--info-fd", str(info_w)] + command[1:], {},
            file_actions=[(os.POSIX_SPAWN_DUP2, live_r, 0), (os.POSIX_SPAWN_DUP2, up_w, 1)], setpgroup=0)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        for fd in info_w, live_r, up_w, filter_r:
            os.close(fd)
        try:
            os.write(live_w, b"\0")
            told = b""
            while b"}" not in told:
                expect(info_r)
                told += os.read(info_r, 4096)
            first = int(told.partition(b'"child-pid":')[2].partition(b",")[0].strip(b' \n}'))
            # A number may be used again. The child of a bwrap that was not waited for is
            # the one that it told of.
            own = call(syscall, (pidfd_open, first, 0))
            with open("/proc/%d/stat" % first, "rb") as f:
                parent = int(f.read().rpartition(b")")[2].split()[1])
            if own < 0 or parent != bwrap:
                raise OSError("the first process of the sandbox is gone")
            # bwrap does not notice when that ends too early.
            expect(up_r, own)
            if os.read(up_r, 1) != b"\0":
                raise OSError("bwrap made no sandbox")
            cover(first, masked, fixed)
        except BaseException:
            # Both that bwrap is: one alone may wait for the other for ever.
            os.killpg(bwrap, _signal.SIGKILL)
            raise
        os.kill(bwrap, _signal.SIGKILL)
        os.waitpid(bwrap, 0)
        show(own)
        link.detach()

        if call(setns, (own, spaces)) != 0:
            fail("setns failed")
        os.chdir("/tmp")
        # What bwrap does to what it starts.
        for i in range(64):
            if call(prctl, (24, i, 0, 0, 0)) != 0:  # PR_CAPBSET_DROP
                break
        call(prctl, (47, 4, 0, 0, 0))  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
        if call(capset, ((0x20080522).to_bytes(4, sys.byteorder) + bytes(4), bytes(24))) != 0:
            fail("capset failed")
        if call(prctl, (38, 1, 0, 0, 0)) != 0:  # PR_SET_NO_NEW_PRIVS
            fail("prctl(PR_SET_NO_NEW_PRIVS) failed")
        # A pointer to the filter is what takes one here: the address of its bytes.
        at = (id(filter) + bytes.__basicsize__ - 1).to_bytes(8, sys.byteorder)
        if call(prctl, (22, 2, (len(filter) // 8).to_bytes(8, sys.byteorder) + at, 0, 0)) != 0:  # PR_SET_SECCOMP
            fail("prctl(PR_SET_SECCOMP) failed")
        if call(prctl, (dumpable, 0, 0, 0, 0)) != 0:
            fail("prctl(PR_SET_DUMPABLE) failed")
        for fd in up_r, info_r:
            os.close(fd)
        instead(own, live_w, bwrap)
        preload[:] = theirs
        for path, mode, data in files:
            if data is None:
                os.mkdir(path, mode)
            else:
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as f:
                    f.write(data)

    while True:
        text, fds = request()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            break
        for fd in fds:
            os.close(fd)
    command, limits, masked, fixed = text.decode("utf-8", "surrogateescape").split("\1")
    ahead[:] = [line.split("=") for line in limits.split()]
    try:
        enter(command.split("\0"), fds, masked.split("\0"), fixed.split("\0"))
    except BaseException as err:
        fail("%s: %s" % (type(err).__name__, err))


serve()
