package runnertest

import (
	"strconv"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
)

// heldLimit is the memory limit of the cases below, in bytes.
const heldLimit = 128 << 20

// holds makes a case of a program that has the kernel hold as much for it as
// it can, and prints how many bytes that is. At most it may be as much as the
// program may have itself.
func holds(what, why string, lack []string, source string) testCase {
	return testCase{
		name: "held/" + what, why: why, lack: append([]string{"isolation", "memory"}, lack...),
		source: "import os, socket, sys\nN = 230\ndef until(f):\n try:\n  while True: f()\n except OSError: pass\n" + source,
		limits: fnloop.Limits{Memory: heldLimit, Time: 30 * time.Second},
		check: func(v *verdict) {
			if v.End == fnloop.EndMemory {
				return
			}
			held := 0
			for f := range strings.FieldsSeq(v.Stdout) {
				n, err := strconv.Atoi(f)
				if err != nil {
					v.Fatalf("stdout = %q", v.Stdout)
				}
				held += n
			}
			v.exits(0)
			if held == 0 || held > heldLimit {
				v.Errorf("the kernel held %d bytes for a program with %d bytes", held, heldLimit)
			}
		},
	}
}

// held has the cases about memory that is the kernel's own.
var held = []testCase{
	holds("udp", "datagrams that nobody reads are bounded with the memory", []string{"sockets"}, `
servers, total = [], 0
for i in range(N):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**30); s.bind(('127.0.0.1', 0)); s.setblocking(False); servers.append(s)
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.setblocking(False)
for s in servers:
    try:
        for i in range(300): c.sendto(bytes(60000), s.getsockname())
    except OSError: pass
def read():
    global total
    total += len(s.recv(1 << 16))
for s in servers: until(read)
print(total)
`),
	holds("tcp", "what connections hold for readers that never read is bounded with the memory", []string{"sockets"}, `
listener, keep, total = socket.create_server(('127.0.0.1', 0), backlog=N), [], 0
def send():
    global total
    total += c.send(bytes(1 << 20))
for i in range(100):
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**30); c.connect(listener.getsockname())
    a = listener.accept()[0]; a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**30); keep += [c, a]
    c.setblocking(False); until(send)
print(total)
`),
	holds("unix", "what sockets hold within the machine is memory", nil, `
keep, total = [], 0
def send():
    global total
    total += a.send(bytes(60000))
for i in range(N // 2):
    try: a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError: break
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**30); a.setblocking(False); keep += [a, b]; until(send)
print(total)
`),
	holds("pipes", "what pipes hold is memory", nil, `
import fcntl
def fill():
    total, pipes = 0, []
    for i in range(N // 2):
        r, w = os.pipe(); os.set_blocking(w, False); pipes.append(r)
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: total += os.write(w, bytes(1 << 20))
        except OSError: pass
    os.write(1, b'%d\n' % total)
done_r, done_w = os.pipe()
ready_r, ready_w = os.pipe() # at its end when no child is still at work, whatever became of it
children = []
for i in range(8):
    pid = os.fork()
    if pid == 0:
        os.close(done_w)
        fill(); os.close(ready_w); os.read(done_r, 1); os._exit(0)
    children.append(pid)
os.close(ready_w); os.read(ready_r, 1); os.close(done_w)
for pid in children: os.waitpid(pid, 0)
`),
	holds("page-tables", "the tables of memory that was only looked at are memory", nil, `
import mmap
size = 1 << 42
try: m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
except OSError: print(4096); sys.exit()
for i in range(0, size, 1 << 21): m[i]
print(size >> 9)
`),
	holds("messages", "queues of messages and semaphores are memory", nil, `
import ctypes
libc, total = ctypes.CDLL(None), 0
b = ctypes.create_string_buffer(8 + 8192); b[0] = b'\1'
for i in range(30000):
    q = libc.msgget(0, 0o1600)
    if q < 0: break
    while libc.msgsnd(q, b, 8192, 0o4000) == 0: total += 8192
for i in range(30000):
    if libc.semget(0, 32000, 0o1600) < 0: break
    total += 32000 * 64
print(total or 1)
`),
	holds("timers", "timers are memory", nil, `
import ctypes
libc, t, n = ctypes.CDLL(None), ctypes.c_void_p(), 1
create = getattr(libc, 'timer_create', None) or ctypes.CDLL('librt.so.1').timer_create
while n < 10**7 and create(1, None, ctypes.byref(t)) == 0: n += 1
print(n * 300)
`),
	holds("filters", "filters that a program gives its sockets are memory", nil, `
import ctypes, struct
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0) * 4000)
program = struct.pack('H6xQ', 4000, ctypes.addressof(code))
done_r, done_w = os.pipe()
ready_r, ready_w = os.pipe() # at its end when no child is still at work, whatever became of it
for i in range(60):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        os.close(done_w)
        keep, n = [], 0
        def attach():
            global n
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); keep.append(s); s.setsockopt(socket.SOL_SOCKET, 26, program); n += 1
        until(attach)
        os.write(1, b'%d\n' % (n * 32000)); os.close(ready_w); os.read(done_r, 1); os._exit(0)
os.close(ready_w); os.read(ready_r, 1)
`),
	holds("epoll", "what epoll waits for is memory", nil, `
import select
files, keep, n = [], [], 0
until(lambda: files.append(os.dup(0)))
del files[-1]
for fd in files[:len(files) // 2]: os.close(fd)
files = [os.pipe()[0] for i in range(len(files) // 6)]
try:
    while True:
        e = select.epoll(); keep.append(e)
        for fd in files: e.register(fd, 1); n += 1
except OSError: pass
print(n * 128)
`),
}
