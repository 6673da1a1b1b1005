"""What every figure shares: its style, its size, and how it becomes a file, byte for byte the same each time."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from quietnn.errors import InvalidConfig
from quietnn.files import write_together

Figure = Any
"""A `matplotlib.figure.Figure`; matplotlib itself is imported only when one is drawn."""

Style = Literal["screen", "paper"]

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
def drawing(style: Style = "screen") -> Iterator[None]:
    """Draw inside this block in one of the styles; matplotlib's own settings are as before afterwards.

    Raises:
        InvalidConfig: for a style that does not exist.
    """
    import matplotlib

    if style not in _STYLES:
        raise InvalidConfig(f"figure style {style!r} does not exist; choose one of {', '.join(get_args(Style))}")
    settings: Any = _COMMON | _STYLES[style]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        with matplotlib.rc_context(settings):
            yield


_WIDTHS = {"screen": (6.4, 9.6), "paper": (3.5, 7.16)}
"""Inches for one panel and for several side by side; on paper a column and the full width of a two-column page."""


def sized(style: Style, *, wide: bool, height: float) -> tuple[float, float]:
    """Width and height in inches; a height is told for the screen and shrinks with the width.

    >>> sized("screen", wide=False, height=4.0), sized("paper", wide=False, height=4.0)
    ((6.4, 4.0), (3.5, 2.625))
    """
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


def to_svg(figure: Figure) -> str:
    """The figure as SVG text: no date, no random identifiers, letters as outlines so that no font is needed."""
    return _render(figure, "svg").decode()


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG file's bytes."""
    return _render(figure, "png")


def to_pdf(figure: Figure) -> bytes:
    """The figure as a PDF file's bytes, its letters as fonts that a publisher accepts."""
    return _render(figure, "pdf")


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write `stem.png` and `stem.svg`, both or neither; returns both paths."""
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    write_together(stem.parent, {png.name: to_png(figure), svg.name: to_svg(figure).encode()})
    return png, svg


def mathtext(label: str) -> str:
    r"""A label for a figure: `MMSE_pb` gets its subscript, and text from a record is never read as mathematics.

    >>> mathtext("MMSE_pb layerwise")
    'MMSE$_{pb}$ layerwise'
    >>> mathtext("a $5 run")
    'a \\$5 run'
    """
    safe = label.replace("$", r"\$")
    for plain, subscript in (("MMSE_pb", "MMSE$_{pb}$"), ("MMSE_p ", "MMSE$_{p}$ "), ("λ′", r"$\lambda'$")):
        safe = safe.replace(plain, subscript)
    return safe[: -len("MMSE_p")] + "MMSE$_{p}$" if safe.endswith("MMSE_p") else safe


def decibels(wnr_db: float) -> str:
    """A number of decibels with a minus sign and not a hyphen.

    >>> decibels(-7.0)
    '−7 dB'
    """
    return f"{wnr_db:g} dB".replace("-", "−")


def _render(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata: dict[str, None] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }[kind]
    with _fixed_salt():
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


@contextmanager
def _fixed_salt() -> Iterator[None]:
    """The settings that matter when a figure is written, whichever style it was drawn in."""
    import matplotlib

    with matplotlib.rc_context(
        {key: _COMMON[key] for key in ("svg.hashsalt", "svg.fonttype", "pdf.fonttype", "savefig.dpi")}
    ):
        yield
