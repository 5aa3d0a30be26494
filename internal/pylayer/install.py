# Installs packages into a virtual environment in LAYER. It runs as a program of a
# sandbox that has a network, and gets all it needs over its standard input. What
# the installer prints goes to standard output; what is wrong beside that, and
# what may help, goes to standard error.
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading

LAYER = "/opt/fnloop/python"
SPACE = "/opt/fnloop/tmp"
PYTHON = LAYER + "/bin/python3"
SITE = "%s/lib/python%d.%d/site-packages" % ((LAYER,) + sys.version_info[:2])

given = json.load(sys.stdin)


def write(name, text):
    path = "/tmp/" + name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(text)
    return path


def stop(text, status=2):
    sys.stderr.write(text + "\n")
    sys.exit(status)


def make_environment():
    for folder in (SITE, LAYER + "/bin", SPACE):
        os.makedirs(folder, exist_ok=True)
    base = getattr(sys, "_base_executable", None) or sys.executable
    os.symlink(base, PYTHON)
    os.symlink("python3", LAYER + "/bin/python")
    if sys.maxsize > 1 << 32:
        os.symlink("lib", LAYER + "/lib64")
    within = sys.prefix != sys.base_prefix
    with open(LAYER + "/pyvenv.cfg", "w") as f:
        f.write("home = %s\ninclude-system-site-packages = %s\nversion = %d.%d.%d\n" % (
            (os.path.dirname(base), "false" if within else "true") + sys.version_info[:3]))
    if within:
        import site
        with open(SITE + "/_fnloop.pth", "w") as f:
            f.writelines("import site; site.addsitedir(%r)\n" % d for d in site.getsitepackages())


def find_pip(env):
    if importlib.util.find_spec("pip"):
        return
    # Debian has it apart, and so has the module that venv takes it from.
    places = ["/usr/share/python-wheels"]
    spec = importlib.util.find_spec("ensurepip")
    if spec and spec.origin:
        places.append(os.path.dirname(spec.origin) + "/_bundled")
    for place in places:
        for wheel in sorted(glob.glob(place + "/pip-*.whl"), reverse=True):
            env["PYTHONPATH"] = wheel
            return
    stop("%s has no pip, and there is no uv: install one of them, such as with apt install python3-pip" % sys.executable)


def usage():
    total = 0
    for folder, _, files in os.walk("/opt/fnloop"):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                pass
    return total


def watch(process, over, done):
    while not done.wait(0.5):
        free = os.statvfs("/opt/fnloop")
        if free.f_bavail * free.f_frsize < given["spare"]:
            over.append("the disk is full: less than %d MiB are left on it" % (given["spare"] >> 20))
        elif usage() > given["most"]:
            over.append("they are larger than %d MiB" % (given["most"] >> 20))
        if over:
            process.kill()
            return


make_environment()
requirements = write("requirements.txt", given["requirements"])
env = {
    "HOME": SPACE, "TMPDIR": SPACE, "LANG": "C.UTF-8", "PATH": LAYER + "/bin:" + os.environ["PATH"],
    "NETRC": write("netrc", given["netrc"]), "PYTHONUNBUFFERED": "1",
}
for name, value in given["variables"].items():
    env[name] = env[name.upper()] = value
cert = write("cert.pem", given["cert"]) if given["cert"] else ""
client_cert = write("client.pem", given["client_cert"]) if given["client_cert"] else ""
constraints = ["-c", write("constraints.txt", given["constraints"])] if given["constraints"] else []
log = "/tmp/pip.log"
uv = given["uv"] or shutil.which("uv")
if uv:
    env.update(given["uv_variables"], UV_NO_CACHE="1", UV_NO_CONFIG="1", UV_PYTHON_DOWNLOADS="never", UV_LINK_MODE="copy", UV_NO_PROGRESS="1")
    if cert:
        env["SSL_CERT_FILE"] = cert
    if client_cert:
        env["SSL_CLIENT_CERT"] = client_cert
    command = [uv, "pip", "install", "--python", PYTHON, "--only-binary", ":all:", "-r", requirements, *constraints]
else:
    find_pip(env)
    config = given["pip"]
    if cert:
        config += "cert = %s\n" % cert
    if client_cert:
        config += "client-cert = %s\n" % client_cert
    env["PIP_CONFIG_FILE"] = write("pip.conf", config)
    command = [
        PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--no-compile",
        "--no-warn-script-location", "--progress-bar", "off", "--ignore-installed", "--only-binary", ":all:",
        "--log", log, "-r", requirements, *constraints]

process = subprocess.Popen(command, env=env, cwd=SPACE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
over, done, said = [], threading.Event(), b""
watcher = threading.Thread(target=watch, args=(process, over, done))
watcher.start()
for line in process.stdout:
    said = (said + line)[-65536:]
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
status = process.wait()
done.set()
watcher.join()
if over:
    stop(over[0])
if status:
    text = said.decode("utf-8", "replace")
    try:
        with open(log, errors="replace") as f:
            logged = f.read(32 << 20)
    except OSError:
        logged = ""
    if "No space left on device" in text:
        stop("the disk is full")
    if "ResolutionImpossible" in text:
        stop("no versions of them go together")
    elif "connection broken by" in text or "error sending request" in text:
        stop("the index cannot be reached from the sandbox of the install")
    elif "No sources permitted for" in logged or "no usable wheels" in text:
        stop("one of them has no wheel for Python %d.%d here, only its source, which is not built: name another version, "
             "or allow it with --no-binary=NAME among the packages" % sys.version_info[:2])
    elif "are compatible (run pip debug" in logged or "is not a supported wheel on this platform" in text or "no wheels with a matching" in text:
        stop("one of them has wheels for other systems or versions of Python only, and this is Python %d.%d: name another version" % sys.version_info[:2])
    elif "subprocess-exited-with-error" in text:
        # What was printed there is in the log alone.
        printed = []
        for line in logged[logged.rfind("Running command "):].splitlines()[1:]:
            line = line.partition(" ")[2]
            if "subprocess-exited-with-error" in line or "finished with status" in line:
                break
            printed.append(line)
        print("\n".join(printed[-16:]))
        stop("one of them could not be built from its source; what it needs for that, such as a compiler, has to be on the machine")
    elif "Failed to build" in text or "error: command" in text:
        stop("one of them could not be built from its source; what it needs for that, such as a compiler, has to be on the machine")
    stop("")

for record in glob.glob(SITE + "/*.dist-info/direct_url.json") + glob.glob(SITE + "/*.dist-info/uv_*.json"):
    os.unlink(record)
# So that the age of a file, which is not kept, does not matter to the interpreter.
# Of what was installed nothing runs at the start of this one.
subprocess.run([PYTHON, "-I", "-S", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", SITE],
               env=env, cwd=SPACE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
shutil.rmtree(SPACE, ignore_errors=True)
