# The part of the supervisor that keeps an interpreter alive. The host sends it
# ahead of the first cell, together with the worker's code; it is run within
# supervise() and sees its names.
#
# The worker is a process that runs the cells, one after the other. What it says
# comes over a pipe that cells can write to as well, so it is passed on as a
# claim and not believed. What is told of here (how long a cell took, how a
# process ended, what was printed, which files there are) is seen from outside.
#
# After each cell the worker makes a stopped copy of itself. When the worker
# ends, or has to be ended, the copy takes its place.
import errno
import fcntl
import stat

DIR = "/tmp/workspace"
PIECE = 65536  # no frame has more in it
PIPE = 262144  # of what is printed, so that who writes and who reads seldom wait
F_SETPIPE_SZ = 1031
MAX_FILES = 10000
MAX_CHANGES = 200
MAX_DEPTH = 32
MAX_BACKGROUND = 1 << 20
PAGE = resource.getpagesize()
SMALL = 32 << 20  # a worker of this size may have two copies for a moment
EVENT = 9  # the head of what the worker says: kind, cell, length

# How long the worker may take for what is not a cell, in seconds.
ANSWER = 10
# The same, where it has modules to import.
PRELOAD = 60
# How often a cell that is to stop is told so.
AGAIN = 0.5
# How long the worker waits for a cell before it gets ready for one.
PAUSE = 0.001
# How long after its begin a cell may not have heard it.
EARLY = 0.02
# How long it may take to begin to say where it hangs, and to finish.
TRACE_START = 1
TRACE_TIME = 0.05

# Beside SIGINT, which the C library ignores while it waits for a command.
SIGNAL_STOP = _signal.SIGRTMAX - 1
SIGNAL_TRACE = _signal.SIGRTMAX - 2


def number(n, size=4):
    return n.to_bytes(size, "big")


class Session:
    def __init__(self, config, code):
        self.code = code
        self.memory = config.get("memory", 0)
        self.grace = config.get("grace_ms", 0) / 1000
        self.copies = config.get("copy", 1)
        self.score = self.own_score()
        self.out = []  # what goes to the host next

        self.out_r, self.out_w = os.pipe()
        self.err_r, self.err_w = os.pipe()
        self.event_r, self.event_w = os.pipe()
        self.cell_r, self.cell_w = os.pipe()
        self.go_r, self.go_w = os.pipe()
        self.null = os.open("/dev/null", os.O_RDONLY)
        self.wake_r, self.wake_w = os.pipe()
        for fd in (1, self.out_w):
            try:
                fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE)
            except OSError:  # no pipe, or too many of that size are the user's
                pass
        for fd in (self.out_r, self.err_r, self.event_r, self.cell_w, self.wake_r, self.wake_w):
            os.set_blocking(fd, False)
        _signal.signal(_signal.SIGCHLD, lambda *args: None)
        _signal.set_wakeup_fd(self.wake_w)

        self.poll = select.poll()
        for fd in (0, self.wake_r, self.event_r, self.out_r, self.err_r):
            self.poll.register(fd, select.POLLIN)
        self.muted = False  # the output is not read for now

        self.worker = None
        self.copy = None
        self.stale = None  # a copy from before the last cell, which is no use any more
        self.copies_lost = 0  # killed by somebody else
        self.dying = set()  # copies that were killed here
        self.phase = "boot"  # or takeover, copy, idle, running, dying
        self.deadline = None  # for an answer of the worker's
        self.events = b""
        self.unsent = bytearray()  # what the worker is yet to read
        self.full = False  # the pipe to it
        self.next = None  # a cell that waits for the worker to be idle
        self.cell = None  # the number of the one that runs
        self.why = ""  # it has to stop
        self.died = None  # the wait status of the worker that it ended
        self.printed = 0
        self.traced = False  # it was asked where it hangs
        self.trace = b""
        self.ended = None  # the wait status of a worker that is yet to be replaced
        self.lost = None  # the same, of one that had no copy, until told
        self.background = 0  # bytes printed since the last cell
        self.restarting = False
        self.puts = {}
        self.counts = self.find_ooms()
        self.files = self.scan()
        self.pids = self.processes()
        self.single = False  # it has one thread
        self.alone = False  # and there is no other process
        self.copying = None  # a cell that the worker has, and begins after a copy

    def own_score(self):
        try:
            with open("/proc/self/oom_score_adj") as f:
                return int(f.read())
        except (OSError, ValueError):
            return None

    def find_ooms(self):
        """The file that counts the processes that were killed for want of memory."""
        for name in ("memory.events", "memory/memory.oom_control"):
            name = "/sys/fs/cgroup/" + name
            try:
                if b"oom_kill " in self.read_file(name):
                    return name
            except OSError:
                pass
        return None

    def ooms(self):
        try:
            return int(self.read_file(self.counts).partition(b"oom_kill ")[2].split()[0])
        except (OSError, ValueError, IndexError):
            return None

    # To the host.

    def tell(self, kind, *parts):
        self.out.append(kind)
        self.out.append(number(sum(map(len, parts))))
        self.out.extend(parts)

    def flush(self):
        if self.out:
            put(b"".join(self.out))
            self.out = []

    # The worker.

    def spawn(self):
        self.phase, self.deadline = "boot", time.monotonic() + (PRELOAD if preload else ANSWER)
        job = (self.code, DIR, self.score, SIGNAL_STOP, SIGNAL_TRACE)
        fds = (self.null, self.out_w, self.err_w, self.cell_r, self.event_w, self.go_r)
        if waiting:
            self.worker = tell_early(job, fds)
            return
        try:
            pid = os.fork()
        except OSError as err:
            fail("fork: %s" % err)
        if pid:
            self.worker = pid
            return
        try:
            serve_cells(job, fds, (
                self.out_r, self.out_w, self.err_r, self.err_w, self.event_r, self.cell_w, self.go_w, self.null,
                self.wake_r, self.wake_w))
        except BaseException as err:
            try:
                os.write(2, ("%s: %s\n" % (type(err).__name__, err)).encode("utf-8", "backslashreplace"))
            except OSError:
                pass
        os._exit(70)

    def kill(self, pid, sig):
        if pid:
            try:
                os.kill(pid, sig)
            except OSError:
                pass

    def signal(self, sig):
        # The worker, and what the cell started: not what was there before.
        self.kill(self.worker, sig)
        for pid in self.processes() - self.pids:
            self.kill(pid, sig)

    def processes(self):
        return {int(p) for p in os.listdir("/proc") if p.isdigit()} - self.dying - {1, self.worker, self.copy, self.stale}

    def living(self):
        # Those that are not dead and only wait for their parent to notice.
        n = 0
        for pid in self.pids:
            n += not self.zombie(pid)
        return n

    def kill_new(self, spare):
        # Until there are none: one may start another while it is looked for.
        killed = set()
        for i in range(100):
            found = [p for p in self.processes() - spare if not self.zombie(p)]
            if not found:
                break
            killed.update(found)
            for pid in found:
                self.kill(pid, _signal.SIGKILL)
            self.bury()
            if i:
                time.sleep(0.005)
        return killed

    def zombie(self, pid):
        try:
            return self.stat(pid)[0] in (b"Z", b"X")
        except OSError:
            return True

    def drop_copy(self):
        self.drop_stale()
        self.stale, self.copy = self.copy, None
        self.drop_stale()

    def drop_stale(self):
        if self.stale:
            self.kill(self.stale, _signal.SIGKILL)
            self.dying.add(self.stale)
            self.stale = None

    def bury(self):
        # Every orphan of the sandbox is ours.
        while True:
            try:
                pid, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.dying.discard(pid)
            if pid in (self.copy, self.stale):
                self.copies_lost += 1
                if pid == self.copy:
                    self.copy = None
                else:
                    self.stale = None
            if pid == self.worker:
                self.worker, self.ended = None, how

    def write(self, kind, cell=0, data=b""):
        self.unsent += kind + number(cell) + number(len(data)) + data
        self.feed()

    def feed(self):
        try:
            while self.unsent:
                n = os.write(self.cell_w, self.unsent[:PIECE])
                del self.unsent[:n]
            self.poll_cell(False)
        except BlockingIOError:
            self.poll_cell(True)

    def poll_cell(self, on):
        if on == self.full:
            return
        self.full = on
        if on:
            self.poll.register(self.cell_w, select.POLLOUT)
        else:
            self.poll.unregister(self.cell_w)

    def replace(self):
        # The worker is dead. Nothing of it stays but the copy.
        how, self.ended = self.ended, None
        self.alone = False
        running = self.phase == "running"
        self.read_output(64)
        if running:
            self.read_events()
        if self.copying:
            self.next, self.copying, self.cell, self.phase = self.copying, None, None, "copy"
        running = self.phase == "running"
        self.drop_stale()
        self.kill_new(set())
        self.read_output(64)
        self.events, self.unsent = b"", bytearray()
        self.poll_cell(False)
        os.set_blocking(self.cell_r, False)
        for fd in (self.event_r, self.cell_r):
            try:
                while os.read(fd, 1 << 20):
                    pass
            except OSError:
                pass
        os.set_blocking(self.cell_r, True)
        if running:
            self.died = how
        if self.restarting:
            self.drop_copy()
        # A copy that is being killed could still take the word that is meant for
        # the one that is to take over.
        for i in range(5000):
            if not self.dying:
                break
            time.sleep(0.001)
            self.bury()
        if self.copy:
            self.worker, self.copy = self.copy, None
            self.phase, self.deadline = "takeover", time.monotonic() + ANSWER
            os.write(self.go_w, b"g")
            return
        if self.cell is None and not self.restarting and self.lost is None:
            self.lost = how
        if self.cell is not None:
            self.end(lost=True)
        self.spawn()

    # What the worker says.

    def read_events(self):
        # Not without end: a cell that says things without end has a limit too.
        for i in range(4):
            try:
                data = os.read(self.event_r, 1 << 16)
            except OSError:
                return
            if not data:
                return
            if self.phase == "running":
                self.count(len(data))
            # What was printed before something was said comes before it.
            self.read_output(16)
            self.events += data
            at = 0
            while len(self.events) - at >= EVENT:
                size = int.from_bytes(self.events[at + 5:at + 9], "big")
                if size > PIECE:
                    self.events = b""
                    return self.broken()
                if len(self.events) - at < EVENT + size:
                    break
                kind = self.events[at:at + 1]
                cell = int.from_bytes(self.events[at + 1:at + 5], "big")
                body = self.events[at + 9:at + 9 + size]
                at += EVENT + size
                self.event(kind, cell, body)
            self.events = self.events[at:]

    def event(self, kind, cell, body):
        if kind == b"r" and self.phase in ("boot", "takeover"):
            restored = self.phase == "takeover"
            if self.cell is not None:
                self.end(restored=restored)
            if self.restarting:
                self.restarting = False
                self.tell(b"t")
            self.rest()
        elif kind == b"k" and (self.phase == "copy" or self.copying):
            pid = int.from_bytes(body[:4], "big")
            self.copy = pid if pid > 1 and pid != self.worker else None
            self.pids.discard(self.copy)
            if self.copying:
                self.begun()
            else:
                self.phase, self.deadline = "idle", time.monotonic() + PAUSE
            self.settle_copy()
        elif kind in (b"v", b"V", b"c", b"D") and self.phase == "running" and cell == self.cell:
            if kind != b"D":
                self.tell(kind, body)
                return
            self.tell(b"c", body)
            if self.why:
                self.end()
                self.rest()
            else:
                # What is to be known of the cell is found out while the copy is made.
                self.rest()
                self.end()
        # Anything else is late, or nonsense.

    def broken(self):
        self.kill(self.worker, _signal.SIGKILL)

    def rest(self):
        # The worker waits for a cell. A copy is made at once; a cell that comes
        # meanwhile is begun after it.
        can = self.can_copy()
        self.copying = None
        self.drop_stale()
        self.stale, self.copy = self.copy, None
        if not can or self.resident > SMALL:
            self.drop_stale()
        if can:
            self.phase, self.deadline = "copy", time.monotonic() + ANSWER
            self.write(b"K")
        else:
            self.phase, self.deadline = "idle", None
        if self.next and self.ended is None:
            self.start()

    def settle_copy(self):
        # What need not be done before the next cell is begun: it runs meanwhile.
        self.drop_stale()
        if self.copy:
            try:
                self.write_file("/proc/%d/oom_score_adj" % self.copy, b"%d" % (self.score or 0))
            except OSError:
                pass

    def can_copy(self):
        # Of several threads only one would be copied. Memory that a cell changes
        # is there twice: with more than half of what there may be, a cell would
        # fail that has room enough without a copy.
        try:
            # Processes and threads are numbered in one row: where the copy has the
            # last number, there is nobody new.
            if not (self.alone and self.copy and self.newest() == self.copy):
                self.pids = self.processes()
                self.single = int(self.stat(self.worker)[17]) == 1
                self.alone = self.single and not self.pids
            self.resident = int(self.read_file("/proc/%d/statm" % self.worker).split()[1]) * PAGE
        except (OSError, TypeError):
            self.alone = False
            return False
        return self.copies and self.single and (not self.memory or self.resident <= self.memory // 2)

    def newest(self):
        """The number that the last process or thread of the sandbox got."""
        try:
            return int(self.read_file("/proc/loadavg").split()[4])
        except (OSError, ValueError, IndexError):
            return 0

    def stat(self, pid):
        """What the kernel says of a process, from its state on."""
        return self.read_file("/proc/%d/stat" % pid).rpartition(b")")[2].split()

    def read_file(self, name):
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)

    def write_file(self, name, data):
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    # Cells.

    def start(self):
        cell, limit, source = self.next
        self.next = None
        self.read_output(16)
        self.listen(True)
        self.background = 0
        self.cell, self.why, self.died = cell, "", None
        self.printed = 0
        if not self.alone:
            self.pids = self.processes()
        if self.phase == "copy":
            self.copying = (cell, limit, source)
        self.phase, self.deadline = "running", None
        self.begin = time.monotonic()
        self.stop_at = self.begin + limit
        self.write(b"X", cell, source)

    def begun(self):
        # The time that the copy took does not count for the limit. A signal that
        # came before met nobody.
        now = time.monotonic()
        self.copying = None
        self.stop_at += now - self.begin
        if self.why:
            self.again_at = now + EARLY

    def stop(self, why):
        # The first cause counts, whatever the cell makes of the signal.
        if not self.why:
            self.why = why
            now = time.monotonic()
            self.kill_at = now + self.grace
            self.again_at = now
            self.signals = 0
            self.traced = False

    def tick(self):
        now = time.monotonic()
        if self.phase != "running":
            if self.deadline is not None and now >= self.deadline:
                self.deadline = now + ANSWER
                if self.phase == "idle":
                    self.deadline = None
                    self.write(b"T")
                else:
                    self.broken()
            return
        if not self.why and now >= self.stop_at:
            self.stop("timeout")
        if not self.why:
            return
        if now >= self.kill_at:
            if self.traced or self.grace <= 0:
                self.broken()
                self.kill_at = now + 1
            else:
                self.traced = True
                self.kill_at = now + TRACE_START
                self.kill(self.worker, SIGNAL_TRACE)
        elif now >= self.again_at and not self.traced:
            self.signal(SIGNAL_STOP if self.signals % 2 else _signal.SIGINT)
            self.signals += 1
            self.again_at = now + (EARLY if now < self.begin + EARLY else AGAIN)

    def wait(self):
        at = self.deadline
        if self.phase == "running":
            at = self.stop_at if not self.why else min(self.kill_at, self.again_at if not self.traced else self.kill_at)
        if at is None:
            return None
        # poll takes no more than a few weeks.
        return max(0, min(at - time.monotonic(), 3600) * 1000 + 0.9)

    def end(self, restored=False, lost=False):
        took = time.monotonic() - self.begin
        if self.why and not (restored or lost):
            killed = self.kill_new(self.pids)
            self.read_output(16)
            # The worker's own children stay as long as it does not ask how they
            # ended. A few are left for the code that started them.
            killed |= self.processes() - self.pids
            if len(killed) > 8:
                self.write(b"W", 0, b"".join(map(number, killed)))
        if self.trace:
            self.tell(b"E", self.trim(self.trace))
            self.trace = b""
        facts = [b"cell=%d\nus=%d\nwhy=%s\n" % (self.cell, took * 1e6, self.why.encode())]
        if self.died is not None:
            facts.append(b"status=%d\n" % self.died)
        if restored:
            facts.append(b"restored=1\n")
        if lost:
            facts.append(b"lost=1\n")
        if self.lost is not None:
            facts.append(b"before=%d\n" % self.lost)
            self.lost = None
        self.cell = None
        n = self.ooms() if self.counts else None
        if n is not None:
            facts.append(b"oom=%d\n" % n)
        if self.copies_lost:
            facts.append(b"copies=%d\n" % self.copies_lost)
            self.copies_lost = 0
        self.changes(facts)
        if self.why or restored or lost:
            self.pids = self.processes()
        if self.pids:
            facts.append(b"processes=%d\n" % self.living())
        self.tell(b"Z", *facts)

    # What is printed.

    def read_output(self, most):
        for fd, kind in ((self.out_r, b"O"), (self.err_r, b"E")):
            for i in range(most):
                if not self.read_stream(fd, kind):
                    break

    def read_stream(self, fd, kind):
        try:
            data = os.read(fd, PIECE)
        except OSError:
            return False
        if self.cell is None:
            kind = b"B"
            self.background += len(data)
            if self.background > MAX_BACKGROUND:
                # Whoever prints so much waits for the next cell.
                self.listen(False)
        else:
            if self.count(len(data)):
                return True  # nobody needs more
            if self.why and self.traced and kind == b"E":
                self.trace = (self.trace + data)[:PIECE]
                self.kill_at = min(self.kill_at, time.monotonic() + TRACE_TIME)
                return True
        self.tell(kind, data)
        return True

    def trim(self, data):
        # From the first frame of ours on it says nothing of the cell.
        kept = []
        ours = False
        for line in data.splitlines(True):
            ours = ours or b'File "<fnloop>"' in line
            if not (ours and line.startswith(b"  ")):
                kept.append(line)
        return b"".join(kept)

    def count(self, n):
        """Adds to what a cell has put out, and reports whether it was too much."""
        self.printed += n
        over = self.printed > config["output"]
        if over:
            self.stop("output")
        return over

    def listen(self, on):
        if on == self.muted:
            self.muted = not on
            for fd in (self.out_r, self.err_r):
                if on:
                    self.poll.register(fd, select.POLLIN)
                else:
                    self.poll.unregister(fd)

    # Files.

    def open_dir(self, parts, make=False):
        fd = os.open(DIR, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        for part in parts:
            try:
                try:
                    inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                except FileNotFoundError:
                    if not make:
                        raise
                    os.mkdir(part, 0o755, dir_fd=fd)
                    inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def scan(self):
        found = {}
        try:
            try:
                fd = self.open_dir(())
            except FileNotFoundError:
                os.mkdir(DIR, 0o755)
                fd = self.open_dir(())
            self.scan_into(found, fd, "", 0)
        except OSError:
            pass
        return found

    def scan_into(self, found, fd, prefix, depth):
        try:
            inner = []
            with os.scandir(fd) as entries:
                for e in entries:
                    name = e.name
                    if name[0] == "." or name == "__pycache__":
                        continue
                    if len(found) >= MAX_FILES:
                        return
                    try:
                        name.encode()
                        if e.is_dir(follow_symlinks=False):
                            inner.append(name)
                        elif e.is_file(follow_symlinks=False):
                            s = e.stat(follow_symlinks=False)
                            found[prefix + name] = (s.st_size, s.st_mtime_ns, s.st_ino)
                    except (OSError, UnicodeError):
                        pass
            for name in inner if depth < MAX_DEPTH else ():
                try:
                    inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                except OSError:
                    continue
                self.scan_into(found, inside, prefix + name + "/", depth + 1)
        finally:
            os.close(fd)

    def changes(self, facts):
        before, self.files = self.files, self.scan()
        if before == self.files:
            return
        changed = []
        for name, was in self.files.items():
            old = before.get(name)
            if old != was:
                changed.append((name, b"c" if old else b"n", was[0]))
        for name in before:
            if name not in self.files:
                changed.append((name, b"r", 0))
        changed.sort()
        if len(changed) > MAX_CHANGES:
            facts.append(b"more=%d\n" % (len(changed) - MAX_CHANGES))
        for name, change, size in changed[:MAX_CHANGES]:
            self.tell(b"L", change, number(size, 8), name.encode())

    def file(self, body):
        call, op, body = body[:4], body[4:5], body[5:]
        try:
            for piece in self.file_op(call, op, body):
                self.tell(b"f", call, b"m", piece)
            self.tell(b"f", call, b"k")
        except OSError as err:
            if op in b"pwe":
                self.drop_put(call)
            text = os.strerror(err.errno) if err.errno else str(err)
            if err.errno in (errno.ELOOP, errno.ENOTDIR):
                text = "a part of the path is a link or a file, not a folder"
            self.tell(b"f", call, b"e", number(err.errno or 0), text.encode())
        except (ValueError, RecursionError) as err:
            self.tell(b"f", call, b"e", number(0), str(err).encode("utf-8", "backslashreplace"))

    def file_op(self, call, op, body):
        if op == b"l":
            files = self.scan()
            batch = b""
            for name in sorted(files):
                size, mtime, _ = files[name]
                name = name.encode()
                batch += number(len(name)) + name + number(size, 8) + number(max(0, mtime), 8)
                if len(batch) > 32768:
                    yield batch
                    batch = b""
            yield batch
        elif op == b"g":
            offset, ino = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")
            *folders, name = body[16:].decode().split("/")
            at = self.open_dir(folders)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            finally:
                os.close(at)
            try:
                s = os.fstat(fd)
                if not stat.S_ISREG(s.st_mode):
                    raise OSError(0, "it is not a file") if not stat.S_ISDIR(s.st_mode) else IsADirectoryError(errno.EISDIR, "")
                if ino and s.st_ino != ino:
                    raise ValueError("it was replaced while it was read")
                yield number(s.st_ino, 8) + number(s.st_size, 8)
                for i in range(16):
                    data = os.pread(fd, 32768, offset)
                    if not data:
                        break
                    offset += len(data)
                    yield data
            finally:
                os.close(fd)
        elif op == b"p":
            *folders, name = body.decode().split("/")
            at = self.open_dir(folders, True)
            hidden = ".put-%d" % int.from_bytes(call, "big")
            try:
                fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=at)
            except OSError:
                os.close(at)
                raise
            self.puts[call] = (fd, at, hidden, name, body.decode())
        elif op == b"w":
            fd = self.put(call)[0]
            while body:
                body = body[os.write(fd, body):]
        elif op == b"e":
            fd, at, hidden, name, path = self.put(call)
            try:
                if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "")
            except FileNotFoundError:
                pass
            os.rename(hidden, name, src_dir_fd=at, dst_dir_fd=at)
            s = os.fstat(fd)
            if not any(part[0] == "." or part == "__pycache__" for part in path.split("/")):
                self.files[path] = (s.st_size, s.st_mtime_ns, s.st_ino)
            self.drop_put(call)
        elif op == b"x":
            self.drop_put(call)
        elif op == b"d":
            *folders, name = body.decode().split("/")
            at = self.open_dir(folders)
            try:
                self.remove(at, name)
            finally:
                os.close(at)
            path = body.decode()
            self.files = {f: s for f, s in self.files.items() if f != path and not f.startswith(path + "/")}
        yield b""

    def put(self, call):
        if call not in self.puts:
            raise ValueError("it was not begun")
        return self.puts[call]

    def drop_put(self, call):
        if call in self.puts:
            fd, at, hidden = self.puts.pop(call)[:3]
            try:
                os.unlink(hidden, dir_fd=at)
            except OSError:
                pass
            os.close(fd)
            os.close(at)

    def remove(self, at, name):
        try:
            return os.unlink(name, dir_fd=at)
        except OSError as err:
            if err.errno not in (errno.EISDIR, errno.EPERM):
                raise
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            for inner in os.listdir(fd):
                self.remove(fd, inner)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=at)

    # The host.

    def host(self):
        kind, body = receive()
        if kind == b"X":
            cell, limit = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:12], "big")
            self.next = (cell, limit / 1000, body[12:])
            # While a copy is made the worker gets the cell too, and begins it then.
            if self.phase in ("idle", "copy") and self.ended is None:
                self.start()
        elif kind == b"i":
            cell, why = int.from_bytes(body[:4], "big"), body[4:].decode()
            if self.cell == cell:
                if self.phase == "running":
                    self.stop(why)
            elif self.next and self.next[0] == cell:
                self.next = None
                self.tell(b"Z", b"cell=%d\nus=0\nwhy=%s\n" % (cell, why.encode()))
        elif kind == b"T":
            self.restarting = True
            self.drop_copy()
            if self.phase != "running":  # one that boots may still say that it is ready
                self.phase, self.deadline = "dying", None
            self.broken()
        elif kind == b"f":
            self.file(body)
        else:
            fail("a frame of kind %r in a session" % kind)

    def serve(self):
        while True:
            self.flush()
            for fd, event in self.poll.poll(self.wait()):
                if fd == 0:
                    if not event & select.POLLIN:
                        leave()
                    self.host()
                elif fd == self.event_r:
                    self.read_events()
                elif fd == self.out_r:
                    self.read_stream(fd, b"O")
                elif fd == self.err_r:
                    self.read_stream(fd, b"E")
                elif fd == self.cell_w:
                    self.feed()
                elif fd == self.wake_r:
                    try:
                        os.read(self.wake_r, 4096)
                    except BlockingIOError:
                        pass
                    self.bury()
            if self.ended is not None:
                self.replace()
            self.tick()


def begin():
    import marshal
    kind, code = receive()
    if code[:1] == b"\n":
        # The host keeps what this makes of the source for the next session.
        code = marshal.dumps(compile(code, "<fnloop>", "exec"))
        own = marshal.dumps(compile(body, "<fnloop>", "exec"))
        for which, whole in ((b"s", own), (b"w", code)):
            for at in range(0, len(whole), PIECE // 2):
                send(b"K", which, whole[at:at + PIECE // 2])
        send(b"K", b".")
    session = Session(config, code)
    session.spawn()
    session.serve()


begin()
