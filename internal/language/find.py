import json, os, shutil, subprocess
from concurrent.futures import ThreadPoolExecutor


def look(entry):
    for need in entry["needs"]:
        if need[0] == "/" and not os.path.exists(need):
            return {"missing": "there is no " + need}
        if need[0] != "/" and shutil.which(need) is None:
            return {"missing": "there is no command " + need}
    command = entry["version"]
    environment = dict(os.environ, **dict(kv.split("=", 1) for kv in entry["env"] or ()))
    environment.pop("GOMEMLIMIT", None)
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=15, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError) as err:
        return {"missing": "%s: %s" % (command[0], type(err).__name__)}
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        return {"missing": "%s ended with status %d: %s" % (command[0], done.returncode, said[:200])}
    words = done.stdout.splitlines()[0].strip() if done.stdout.strip() else ""
    return {"version": words}


# Two at a time: more may need more memory than one program does.
with ThreadPoolExecutor(2) as pool:
    print(json.dumps(list(pool.map(look, json.loads(TABLE)))))
