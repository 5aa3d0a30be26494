import importlib.metadata, pkgutil, re, sys
asked = ("numpy scipy pandas matplotlib sympy sklearn statsmodels networkx "
         "PIL cv2 requests bs4 lxml yaml openpyxl mpmath polars pyarrow").split()
skip = {"pip", "setuptools", "wheel", "distribute", "pkg_resources", "easy_install", "distutils", "_distutils_hack"}
known = skip | set(getattr(sys, "stdlib_module_names", ()))
places = [p for p in sys.path if p.endswith("-packages")]
there = {}
for i, place in enumerate(places):
    for m in pkgutil.iter_modules([place]):
        there.setdefault(m.name, place)

def modules(d):
    """The names under which a distribution is imported."""
    text = d.read_text("top_level.txt")
    names = (text or "").split()
    if not names:
        for f in d.files or ():
            top = f.parts[0]
            if len(f.parts) == 1:
                top = re.sub(r"\.(cpython|abi3)[^/]*$|\.py$|\.so$", "", top)
            names.append(top)
    return sorted({n.split("/")[0] for n in names} & set(there) - known, key=lambda n: (n[0] == "_", n.lower() != key(d), n))

def key(d):
    return re.sub(r"[-_.]+", "_", d.metadata["Name"] or "").lower()

found = []
for d in importlib.metadata.distributions(path=places):
    try:
        name, version, names = d.metadata["Name"], d.version, modules(d)
        if not name or name.lower() in skip or not names or names[0][0] == "_":
            continue
        known.update(names)
        first = names[0]
        wanted = d.read_text("REQUESTED") is not None and there[first].startswith("/opt/fnloop/")
        rank = 0 if wanted else 1 + asked.index(first) if first in asked else 100 if there[first].startswith("/opt/fnloop/") else 200
        text = name if version in ("0", "0.0.0") else "%s %s" % (name, version)
        if first.lower() != name.lower():
            text += " (import %s)" % first
        found.append((rank, name.lower(), text))
    except Exception:
        pass
for name in there:
    if name not in known and name[0] != "_":
        rank = 1 + asked.index(name) if name in asked else 300
        found.append((rank, name.lower(), name))
print(*[" ".join(text.split()) for rank, name, text in sorted(found)[:40]], sep="\n")
