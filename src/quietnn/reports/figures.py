"""What every figure shares: its style, its size, and how it becomes a file, byte for byte the same each time."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from quietnn.errors import InvalidConfig
from quietnn.methods import is_oracle, style_of

Figure = Any
"""A `matplotlib.figure.Figure`; matplotlib itself is imported only when one is drawn."""

_COMMON: dict[str, Any] = {
    "svg.hashsalt": "quietnn",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "legend.handlelength": 2.6,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}
_STYLES: dict[str, dict[str, Any]] = {
    "screen": {
        "font.family": "DejaVu Sans",
        "font.size": 9.0,
        "axes.titlesize": 10.0,
        "axes.edgecolor": "#444444",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": "#e4e4e4",
        "legend.frameon": False,
    },
    "paper": {
        "font.family": "STIXGeneral",
        "mathtext.fontset": "stix",
        "font.size": 8.0,
        "axes.titlesize": 8.0,
        "axes.linewidth": 0.6,
        "grid.color": "#c8c8c8",
        "grid.linestyle": ":",
        "grid.linewidth": 0.5,
        "lines.linewidth": 1.1,
        "lines.markersize": 3.6,
        "legend.fontsize": 7.0,
        "legend.handlelength": 2.4,
        "legend.borderpad": 0.3,
        "legend.labelspacing": 0.25,
        "patch.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "legend.framealpha": 1.0,
        "legend.edgecolor": "#000000",
        "legend.fancybox": False,
        "xtick.direction": "in",
        "ytick.direction": "in",
        "xtick.top": True,
        "ytick.right": True,
    },
}


@contextmanager
def drawing(style: str = "screen") -> Iterator[None]:
    """Draw inside this block in one of the styles; matplotlib's own settings are as before afterwards."""
    import matplotlib

    if style not in _STYLES:
        raise InvalidConfig(f"figure style {style!r} does not exist; choose screen or paper")
    settings: Any = _COMMON | _STYLES[style]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        with matplotlib.rc_context(settings):
            yield


_WIDTHS = {"screen": (6.4, 9.6), "paper": (3.5, 7.16)}
"""Inches for one panel and for several side by side; on paper a column and the full width of a two-column page."""


def sized(style: str, *, wide: bool, height: float) -> tuple[float, float]:
    """Width and height in inches; a height is told for the screen and shrinks with the width."""
    width = _WIDTHS[style][wide]
    stretch = 1.2 if style == "paper" and not wide else 1.0
    return width, round(height * stretch * width / _WIDTHS["screen"][wide], 4)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, tied to no window and to no pyplot state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(width, height), dpi=_COMMON["savefig.dpi"])
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure) -> Figure:
    """Lay the figure out once and keep the layout: ticks get the style at hand, and writing it is twice as fast.

    The first pass places the axes, and with them the ticks; only the second knows how wide the tick labels are.
    """
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def render(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG, SVG or PDF file, without date or random identifiers.

    Letters are outlines in SVG, so that no font is needed, and in PDF fonts that a publisher accepts.
    """
    import matplotlib

    metadata: dict[str, None] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }[kind]
    buffer = io.BytesIO()
    settings: Any = {key: _COMMON[key] for key in ("svg.hashsalt", "svg.fonttype", "pdf.fonttype", "savefig.dpi")}
    with matplotlib.rc_context(settings):  # whichever style it was drawn in
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def images(name: str, figure: Figure, kinds: Sequence[str] = ("png", "svg")) -> dict[str, bytes]:
    """The figure in several formats, by the names of the files."""
    return {f"{name}.{kind}": render(figure, kind) for kind in kinds}


def looks(methods: Sequence[str]) -> list[dict[str, Any]]:
    """Colour, marker and dash of each method's line; a repeat keeps its colour, changes its dash and is hollow."""
    dashes = ("-", "--", "-.", ":")
    seen: Counter[str] = Counter()
    found = []
    for method in methods:
        style, variant = style_of(method), seen[method]
        seen[method] += 1
        dash = dashes[(dashes.index(style.line) + variant) % 4]
        hollow = is_oracle(method) or variant > 0
        found.append({"colour": style.colour, "marker": style.marker, "dash": dash, "hollow": hollow})
    return found


def mathtext(label: str) -> str:
    """A label for a figure: `MMSE_pb` gets its subscript, and text from a record is never read as mathematics."""
    safe = re.sub(r"MMSE_(pb?)\b", r"MMSE$_{\1}$", label.replace("$", r"\$"))
    return safe.replace("λ′", r"$\lambda'$")


def decibels(wnr_db: float) -> str:
    """A number of decibels with a minus sign and not a hyphen."""
    return f"{wnr_db:g} dB".replace("-", "−")
