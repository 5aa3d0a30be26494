# How the worker shows values: as text for the model, and in richer forms for
# people. It is part of the worker. No library is imported for a value: where one
# is not loaded there is no value of its kind.

MAX_FORM = 4 << 20
MAX_IMAGE = 1 << 20
MAX_IMAGES = 8
MAX_SIDE = 4096
MAX_AREA = 1_200_000
MAX_ELEMENTS = 2000
MAX_CHARS = 65536
BACKEND = "fnloop_figures"

METHODS = (
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)


def display(*objects, **ignored):
    """Shows values, each as the last expression of a cell would be."""
    for value in objects:
        show_value(value, False)


def show_value(value, main):
    forms = bundle(value, main)
    if forms:
        show(main, forms)


def bundle(value, main):
    figure = loaded("matplotlib.figure", "Figure")
    if figure and isinstance(value, figure):
        return figure_forms(value, main)
    pandas = the_modules.get("pandas")
    if pandas is not None:
        try:
            if isinstance(value, pandas.Series):
                value = value.to_frame("value" if value.name is None else value.name)
            if isinstance(value, pandas.DataFrame):
                return frame_forms(value, pandas)
        except Exception:
            pass  # half imported, or a frame that cannot be printed so
    picture = loaded("PIL.Image", "Image")
    if picture and isinstance(value, picture):
        value = shrink(value)
    forms = {}
    if not isinstance(value, type):
        rich_forms(value, forms)
    forms.setdefault("text/plain", text_bytes(text_of(value)))
    return {name: data for name, data in forms.items() if len(data) <= MAX_FORM}


def loaded(module, name):
    module = the_modules.get(module)
    return getattr(module, name, None) if module is not None else None


def rich_forms(value, forms):
    kind = type(value)
    method = getattr(kind, "_repr_mimebundle_", None)
    if method is not None:
        try:
            found = method(value, include=None, exclude=None)
            if isinstance(found, tuple):
                found = found[0]
            for name, data in (found or {}).items():
                add(forms, name, data)
        except Exception:
            pass
    for name, mime in METHODS:
        method = getattr(kind, name, None)
        if method is None or mime in forms:
            continue
        try:
            data = method(value)
            if isinstance(data, tuple):
                data = data[0]
            if data is not None:
                add(forms, mime, data)
        except Exception:
            pass


def add(forms, mime, data):
    if not isinstance(mime, str):
        return
    if isinstance(data, str) and mime in ("image/png", "image/jpeg", "image/gif"):
        import binascii
        data = binascii.a2b_base64(data)
    elif isinstance(data, str):
        data = text_bytes(data)
    elif not isinstance(data, (bytes, bytearray, memoryview)):
        import json
        data = text_bytes(json.dumps(data, ensure_ascii=False, default=str))
    if mime == "text/plain":
        data = text_bytes(clip(bytes(data).decode("utf-8", "replace"), MAX_TEXT))
    forms[mime] = bytes(data)


def text_of(value):
    kind = type(value)
    if kind in (str, bytes, bytearray) and len(value) > MAX_CHARS:
        half = MAX_TEXT // (2 if kind is str else 8)
        left = len(value) - 2 * half
        return "%r\n[... %d %s left out ...]\n%r" % (
            value[:half], left, "characters" if kind is str else "bytes", value[-half:])
    if kind in (list, tuple, set, frozenset, dict) and weigh(value, MAX_ELEMENTS * 40, 0) > MAX_ELEMENTS * 40:
        import reprlib
        short = reprlib.Repr()
        short.maxlevel = 20
        for name in ("maxtuple", "maxlist", "maxarray", "maxdict", "maxset", "maxfrozenset", "maxdeque"):
            setattr(short, name, 1000)
        short.maxstring = short.maxlong = short.maxother = MAX_TEXT
        return clip(short.repr(value), MAX_TEXT)
    return clip(repr(value), MAX_TEXT)


def weigh(value, most, depth):
    """About how long the text of a value is, as far as it is at most most."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        return len(value)
    if kind is dict:
        n = 40 * len(value)
        inner = (x for pair in value.items() for x in pair)
    elif kind in (list, tuple, set, frozenset):
        n = 40 * len(value)
        inner = iter(value)
    else:
        return 0
    if depth > 20:
        return n
    for x in inner:
        if n > most:
            break
        n += weigh(x, most - n, depth + 1)
    return n


# Figures.

def figure_forms(figure, main):
    text = {"text/plain": text_bytes(clip(repr(figure), MAX_TEXT))}
    if main and managed(figure):
        return text  # it is shown with the others that are open
    png = draw(figure, True)
    if png is None:
        return text
    return {"image/png": png, **text}


def managers():
    helpers = loaded(FIGURES, "Gcf")
    return list(helpers.get_all_fig_managers()) if helpers else []


def managed(figure):
    return any(m.canvas.figure is figure for m in managers())


def show_open():
    """Shows the open figures that have changed since they were shown."""
    for m in managers():
        show_figure(m.canvas.figure)


def show_figure(figure):
    if id(figure) in own.seen and not figure.stale:
        return
    png = draw(figure, False)
    if png is not None:
        show(False, {"image/png": png, "text/plain": text_bytes(clip(repr(figure), MAX_TEXT))})


def show_figures():
    """Shows what a cell has left open, and closes it."""
    if not managers():
        return
    try:
        show_open()
    finally:
        loaded(FIGURES, "Gcf").destroy_all()


def empty(figure):
    return not (figure.axes or figure.images or figure.lines or figure.texts or figure.patches
                or figure.artists or figure.legends or getattr(figure, "subfigs", None))


def draw(figure, again):
    """The figure as PNG, or None when it is empty, was shown just so, or is one
    of too many."""
    if empty(figure):
        return None
    if own.images >= MAX_IMAGES:
        own.omitted += 1
        return None
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            png = render(figure, 1)
            if len(png) > MAX_IMAGE:
                png = render(figure, 0.5)
        except Exception as err:
            png = None
            caught.append(err)
    complain(caught, warnings)
    figure.stale = False
    if png is None or len(png) > MAX_IMAGE:
        if png is not None:
            sys.stderr.write("a figure was not shown: as an image it has %d bytes\n" % len(png))
        own.omitted += 1
        return None
    mark = hash(png)
    if own.seen.get(id(figure), (None,))[0] == mark and not again:
        return None
    own.seen[id(figure)] = (mark, figure)
    own.images += 1
    return png


def render(figure, scale):
    import io
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    before, dpi = figure.canvas, figure.dpi
    canvas = before if isinstance(before, FigureCanvasAgg) else FigureCanvasAgg(figure)
    width, height = figure.get_size_inches()
    small = fit(width, height, dpi) * scale
    try:
        # The size is bounded before anything is drawn: at the figure's own
        # resolution it could be larger than the memory.
        figure.dpi = small
        box = None
        try:
            tight = figure.get_tightbbox(canvas.get_renderer())
            w, h = float(tight.width), float(tight.height)
            if 0 < w * h <= 2 * width * height and max(w, h) <= 2 * max(width, height):
                box = "tight"
                small = min(small, fit(w + 0.2, h + 0.2, small))
        except Exception:
            pass
        out = io.BytesIO()
        canvas.print_figure(out, format="png", dpi=small, bbox_inches=box)
        return out.getvalue()
    finally:
        figure.dpi = dpi
        if canvas is not before:
            figure.set_canvas(before)


def fit(width, height, dpi):
    side, area = max(width, height), width * height
    if side * dpi > MAX_SIDE:
        dpi = MAX_SIDE / side
    if area * dpi * dpi > MAX_AREA:
        dpi = (MAX_AREA / area) ** 0.5
    return dpi


def complain(caught, warnings):
    glyphs = []
    for w in caught:
        if isinstance(w, Exception):
            sys.stderr.write("a figure was not shown: %s: %s\n" % (type(w).__name__, w))
            continue
        text = str(w.message)
        if "lyph" in text and "missing" in text:
            if text not in glyphs:
                glyphs.append(text)
            continue
        try:
            warnings.showwarning(w.message, w.category, w.filename, w.lineno)
        except Exception:
            pass
    for text in glyphs[:3]:
        sys.stderr.write("warning: %s\n" % text)
    if len(glyphs) > 3:
        sys.stderr.write("warning: %d more glyphs are missing\n" % (len(glyphs) - 3))


def backend():
    """The module that pyplot shows its figures with."""
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Manager(FigureManagerBase):
        def show(self):
            show_figure(self.canvas.figure)

        @classmethod
        def pyplot_show(cls, *args, **kwargs):
            show_open()

    class Canvas(FigureCanvasAgg):
        manager_class = Manager

    def new_figure_manager(num, *args, FigureClass=Figure, **kwargs):
        return new_figure_manager_given_figure(num, FigureClass(*args, **kwargs))

    def new_figure_manager_given_figure(num, figure):
        return Manager(Canvas(figure), num)

    module = types.ModuleType(BACKEND)
    module.FigureCanvas, module.FigureManager = Canvas, Manager
    module.new_figure_manager = new_figure_manager
    module.new_figure_manager_given_figure = new_figure_manager_given_figure
    module.show = Manager.pyplot_show
    module.draw_if_interactive = lambda: None
    return module


def use_backend():
    import matplotlib
    if str(dict.get(matplotlib.rcParams, "backend")).lower() == "agg":
        the_modules[BACKEND] = backend()
        matplotlib.rcParams["backend"] = "module://" + BACKEND


def shrink(picture):
    """A picture of a size that can be shown, in a mode that can be saved."""
    try:
        width, height = picture.size
        if picture.mode in ("La", "RGBa"):
            picture = picture.convert(picture.mode.upper())
        elif picture.mode not in ("1", "I", "I;16", "L", "LA", "P", "RGB", "RGBA"):
            picture = picture.convert("RGB")
        factor = fit(width, height, 1)
        if factor < 1:
            picture = picture.copy()
            picture.thumbnail((max(1, int(width * factor)), max(1, int(height * factor))))
    except Exception:
        pass
    return picture


# Tables.

MAX_COLUMNS = 50
MAX_ROWS = 1000
MAX_TABLE = 8192
MAX_CELLS = 10000


def frame_forms(frame, pandas):
    forms = {"text/plain": text_bytes(frame_text(frame, pandas))}
    try:
        forms.update(table_forms(frame))
    except Exception:
        pass  # the text is what counts
    return forms


def frame_text(frame, pandas):
    rows, columns = frame.shape
    shown, rest = frame, ""
    if columns > MAX_COLUMNS:
        half = MAX_COLUMNS // 2
        middle = ", ".join(str(c) for c in frame.columns[half:-half])
        rest = "\n%d columns in the middle: %s" % (columns - MAX_COLUMNS, clip(middle, 2048))
        shown = frame.iloc[:, list(range(half)) + list(range(columns - half, columns))]
    with pandas.option_context("display.width", 1_000_000, "display.max_columns", None, "display.max_colwidth", 80,
                               "display.expand_frame_repr", False):
        text = shown.to_string(max_rows=20 if rows > 40 else None, min_rows=20, line_width=None, show_dimensions=False)
    text = clip(text, MAX_TABLE) + rest
    text += "\n%d row%s × %d column%s" % (rows, "" if rows == 1 else "s", columns, "" if columns == 1 else "s")
    if 0 < columns <= 20:
        text += "\ndtypes: " + ", ".join("%s %s" % (n, t) for n, t in zip(frame.columns, frame.dtypes))
    return text


def table_forms(frame):
    import html
    import json
    rows = min(len(frame), MAX_ROWS, max(1, MAX_CELLS // max(1, frame.shape[1])))
    part = frame.iloc[:rows]
    names = ["index"]
    for c in part.columns:
        name = str(c)
        while name in names:
            name += "_"
        names.append(name)
    kinds = [kind_of(part.index.dtype)] + [kind_of(t) for t in part.dtypes]
    columns = [list(part.index)] + [list(part.iloc[:, i]) for i in range(part.shape[1])]
    columns = [[plain(v) for v in c] for c in columns]
    records = [dict(zip(names, row)) for row in zip(*columns)]
    schema = {"fields": [{"name": n, "type": k} for n, k in zip(names, kinds)], "primaryKey": ["index"]}
    document = {"schema": schema, "data": records, "rows": len(frame)}
    lines = ["<table><thead><tr>"]
    lines += ["<th>%s</th>" % html.escape("" if i == 0 else n) for i, n in enumerate(names)]
    lines.append("</tr></thead><tbody>")
    for row in zip(*columns):
        lines.append("<tr>" + "".join(
            ("<th>%s</th>" if i == 0 else "<td>%s</td>") % html.escape("" if v is None else str(v))
            for i, v in enumerate(row)) + "</tr>")
    lines.append("</tbody></table><p>%d rows × %d columns</p>" % frame.shape)
    return {
        "application/vnd.dataresource+json": text_bytes(json.dumps(document, ensure_ascii=False, allow_nan=False)),
        "text/html": text_bytes("".join(lines)),
    }


def kind_of(dtype):
    kind = getattr(dtype, "kind", "O")
    return {"i": "integer", "u": "integer", "f": "number", "b": "boolean", "M": "datetime", "m": "duration"}.get(kind, "string")


def plain(value):
    """A value that JSON has."""
    try:
        if hasattr(value, "item") and not isinstance(value, (str, bytes)):
            value = value.item()
        if value is None or isinstance(value, (bool, int)):
            return value if value is None or isinstance(value, bool) or -2**53 < value < 2**53 else str(value)
        if isinstance(value, float):
            return value if value - value == 0 else None
        text = clip(str(value), 1000)
        return None if text in ("NaT", "<NA>") else text.encode("utf-8", "replace").decode()
    except Exception:
        return "<a value that cannot be shown>"


# What is imported.

class Hook:
    """A finder that lets a few modules be prepared when they are imported."""

    names = {"matplotlib.pyplot", "multiprocessing.context", "IPython.display"}

    def find_spec(self, name, path=None, target=None):
        if name not in self.names and name != "IPython":
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        if spec is None:
            return stub_spec(name) if name.startswith("IPython") else None
        if name in self.names and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, name)
        return spec


class Loader:
    def __init__(self, inner, name):
        self.inner, self.name = inner, name

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        if self.name == "matplotlib.pyplot":
            try:
                use_backend()
            except Exception:
                pass
        self.inner.exec_module(module)
        module.__spec__.loader = module.__loader__ = self.inner
        prepare(self.name, module)


def prepare(name, module):
    if name == "IPython.display":
        module.display = display
    elif name == "multiprocessing.context" and sys.version_info >= (3, 14):
        # Functions of a cell are found by a child that is forked only.
        module._default_context._default_context = module._concrete_contexts["fork"]


def prepare_loaded():
    """Does for the modules that are there already what Hook does for others."""
    for name in Hook.names & set(the_modules):
        try:
            prepare(name, the_modules[name])
            if name == "matplotlib.pyplot":
                use_backend()
                if getattr(the_modules[name], "_backend_mod", None) is not None:
                    the_modules[name].switch_backend("module://" + BACKEND)
        except Exception:
            pass


def stub_spec(name):
    import _frozen_importlib
    return _frozen_importlib.ModuleSpec(name, Stub(), is_package=name == "IPython")


class Stub:
    """IPython, as far as people use it to show things, where it is not there."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.display = display
        if module.__name__ == "IPython":
            module.get_ipython = lambda: None
            return

        def shown(method):
            class Shown:
                def __init__(self, data=None, filename=None, url=None, **ignored):
                    if data is None and filename is not None:
                        with open(filename, "rb") as f:
                            data = f.read()
                    self.data = data

                def __repr__(self):
                    return "<%s>" % type(self).__name__
            if method:
                setattr(Shown, method, lambda self: self.data)
            return Shown

        for name, method in (("HTML", "_repr_html_"), ("Markdown", "_repr_markdown_"), ("SVG", "_repr_svg_"),
                             ("Latex", "_repr_latex_"), ("Math", "_repr_latex_"), ("JSON", "_repr_json_"),
                             ("Javascript", None), ("Image", None)):
            kind = shown(method)
            kind.__name__ = kind.__qualname__ = name
            setattr(module, name, kind)
        module.Image._repr_png_ = lambda self: self.data if bytes(self.data or b"")[:4] == b"\x89PNG" else None
        module.Image._repr_jpeg_ = lambda self: self.data if bytes(self.data or b"")[:2] == b"\xff\xd8" else None
        module.clear_output = lambda *args, **kwargs: None
        module.set_matplotlib_formats = lambda *args, **kwargs: None
