"""Tables as plain data, and the ways to write them: Markdown, LaTeX, CSV, HTML."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.reports.curves import Curve
from quietnn.reports.gains import Gain, crossing, percent

ABSENT = "–"
"""What stands in a cell that was not measured."""


@dataclass(frozen=True)
class Table:
    """A caption, the names of the columns, and rows of text; the first column names the row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_table(curves: Sequence[Curve]) -> Table:
    """Accuracy in per cent, mean and standard deviation over draws: a row for each method, a column for each WNR.

    >>> from quietnn.reports.curves import make_curve
    >>> accuracy_table([make_curve("ml", [-6.0], [[0.60], [0.62]])]).rows
    (('ML', '61.0 ± 1.4'),)
    """
    wnrs = sorted({float(wnr) for curve in curves for wnr in curve.wnr_db})
    most = max((curve.num_draws for curve in curves), default=0)
    caption = f"Test accuracy in per cent against WNR, mean ± standard deviation over {_draws(most)}"
    rows = [(curve.label, *_accuracy_cells(curve, wnrs)) for curve in curves]
    return Table(caption, ("method", *(f"{wnr:g} dB" for wnr in wnrs)), tuple(rows))


def gain_table(
    curves: Sequence[Curve], gains: Sequence[Gain | None], level: float, *, confidence: float = 0.95
) -> Table:
    """The WNR each method needs to hold an accuracy and its gain over the reference, with what must be said of it."""
    caption = f"WNR needed to hold {percent(level)} and gain over ML, with a paired bootstrap interval over draws"
    header = ("method", "WNR (dB)", "gain (dB)", f"{percent(confidence)} interval", "draws", "note")
    rows = []
    for curve, gain in zip(curves, gains, strict=True):
        at = crossing(curve, level)
        needed = ABSENT if at.wnr_db is None else f"{at.wnr_db:.2f}"
        rest = (ABSENT, ABSENT, str(curve.num_draws), at.reason) if gain is None else _gain_cells(gain)
        rows.append((curve.label, needed, *rest))
    return Table(caption, header, tuple(rows))


def cost_table(records: Iterable[Record]) -> Table:
    """What each method cost at one WNR and draw: forward passes over the tuning examples, and seconds."""
    passes: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record["method"] != CLEAN:
            passes[record["method"]].append(float(record.get("num_passes") or 0))
            seconds[record["method"]].append(float(record.get("seconds") or 0))
    rows = [
        (style_of(method).label, f"{_mean(passes[method]):.0f}", f"{_mean(seconds[method]):.2f}")
        for method in sorted(passes, key=rank)
    ]
    caption = "Mean cost of one denoised model, tuning and test included"
    return Table(caption, ("method", "passes over the tuning examples", "seconds"), tuple(rows))


def to_markdown(table: Table) -> str:
    """The table in Markdown, caption first.

    >>> print(to_markdown(Table("Two", ("a", "b"), (("x", "1"),))))
    **Two**
    <BLANKLINE>
    | a | b |
    |---|---|
    | x | 1 |
    """
    lines = [_markdown_row(table.header), "|" + "---|" * len(table.header), *map(_markdown_row, table.rows)]
    return f"**{table.caption}**\n\n" + "\n".join(lines)


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX `tabular` with booktabs rules.

    >>> print(to_latex(Table("Two", ("a", "b"), (("x_p", "1 ± 2"),))))
    % Two
    \begin{tabular}{lr}
    \toprule
    a & b \\
    \midrule
    x\_p & $1 \pm 2$ \\
    \bottomrule
    \end{tabular}
    """
    rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows]
    head = " & ".join(map(_latex_cell, table.header)) + r" \\"
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [f"% {table.caption}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def to_csv(table: Table) -> str:
    """The table as comma-separated values, header first.

    >>> print(to_csv(Table("Two", ("a", "b"), (("x, y", "1"),))), end="")
    a,b
    "x, y",1
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.header, *table.rows])
    return buffer.getvalue()


def _accuracy_cells(curve: Curve, wnrs: Sequence[float]) -> list[str]:
    found = dict(zip(curve.wnr_db.tolist(), zip(curve.mean, curve.std, curve.counts, strict=True), strict=True))
    cells = []
    for wnr in wnrs:
        mean, std, count = found.get(wnr, (math.nan, math.nan, 0))
        spread = "" if math.isnan(std) else f" ± {100 * std:.1f}"
        fewer = f" ({count} of {curve.num_draws})" if 0 < count < curve.num_draws else ""
        cells.append(f"{100 * mean:.1f}{spread}{fewer}" if count else ABSENT)
    return cells


def _gain_cells(gain: Gain) -> tuple[str, str, str, str]:
    value = ABSENT if gain.gain_db is None else f"{gain.gain_db:+.2f}"
    return value, interval_text(gain), str(gain.num_draws), gain.note


def interval_text(gain: Gain) -> str:
    """The interval as a reader writes it, open where a resample did not cross.

    >>> interval_text(Gain(0.6, 1.0, 0.5, math.inf, 5, ""))
    '0.50 to ∞'
    """
    if gain.low is None or gain.high is None:
        return ABSENT
    return f"{_two_places(gain.low)} to {_two_places(gain.high)}".replace("inf", "∞")


def _two_places(value: float) -> str:
    """Two decimals, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def _draws(count: int) -> str:
    return "one draw (no deviation)" if count == 1 else f"{count} noise draws"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _markdown_row(cells: Iterable[str]) -> str:
    safe = (cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(safe) + " |"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "∞": r"$\infty$",
    "κ": r"$\kappa$",
    "–": "--",
}


def _latex_cell(cell: str) -> str:
    mean, sign, std = cell.partition(" ± ")
    if sign and _is_number(mean) and _is_number(std):
        return rf"${mean} \pm {std}$"
    return "".join(_LATEX.get(letter, letter) for letter in cell).replace("±", r"$\pm$")


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
