"""Tables as plain data, and the ways to write them: Markdown, LaTeX, CSV, HTML."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.reports.curves import Curve
from quietnn.reports.gains import CONFIDENCE, Gain, crossing
from quietnn.reports.quantities import ACCURACY, Quantity, percent
from quietnn.reports.runs import grouped

ABSENT = "–"
"""What stands in a cell that was not measured."""

NOTE = "note"
"""The last column of a table whose rows have something to say; in Markdown it is a mark, and the notes stand below."""

_MARKS = "¹²³⁴⁵⁶⁷⁸⁹ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"


@dataclass(frozen=True)
class Table:
    """A caption, the names of the columns, and rows of text; the first column names the row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class Footnotes:
    """What must be said of single cells, each once, with a mark in the cell."""

    texts: list[str] = field(default_factory=list)

    def mark(self, text: str) -> str:
        """The mark of a note; empty for an empty one."""
        if not text:
            return ""
        if text not in self.texts:
            self.texts.append(text)
        place = self.texts.index(text)
        return f" {_MARKS[place]}" if place < len(_MARKS) else f" ({place + 1})"

    def lines(self) -> str:
        """All notes, one a line."""
        return "\n".join(f"- {self.mark(text).strip()} {text[0].upper()}{text[1:]}." for text in self.texts)


def accuracy_table(curves: Sequence[Curve], quantity: Quantity = ACCURACY) -> Table:
    """Accuracy or its like, mean and standard deviation over draws: a row for each method, a column for each WNR."""
    wnrs = sorted({float(wnr) for curve in curves for wnr in curve.wnr_db})
    most = max((curve.num_draws for curve in curves), default=0)
    draws = "one draw (no deviation)" if most == 1 else f"{most} noise draws"
    rows = [(curve.label, *_accuracy_cells(curve, wnrs)) for curve in curves]
    return Table(f"{quantity.caption} {draws}", ("method", *(f"{wnr:g} dB" for wnr in wnrs)), tuple(rows))


def gain_table(
    curves: Sequence[Curve], gains: Sequence[Gain | None], level: float, quantity: Quantity = ACCURACY
) -> Table:
    """The WNR each method needs to hold a level and its gain over the reference, with what must be said of it."""
    over = "draws and test examples" if all(curve.right is not None for curve in curves) else "draws"
    caption = (
        f"WNR needed to hold {quantity.text(level)} and gain over ML, with a paired bootstrap interval over {over}"
    )
    header = ("method", "WNR (dB)", "gain (dB)", f"{percent(CONFIDENCE)} interval", "draws", NOTE)
    rows = []
    for curve, gain in zip(curves, gains, strict=True):
        at = crossing(curve, level)
        needed = ABSENT if at.wnr_db is None else f"{at.wnr_db:.2f}"
        gained, interval, num_draws, note = ABSENT, ABSENT, curve.num_draws, at.reason
        if gain is not None:
            gained = ABSENT if gain.gain_db is None else f"{gain.gain_db:+.2f}"
            interval, num_draws, note = interval_text(gain), gain.num_draws, gain.note
        rows.append((curve.label, needed, gained, interval, str(num_draws), note))
    return Table(caption, header, tuple(rows))


def cost_table(records: Iterable[Record]) -> Table:
    """What each method cost at one WNR and draw: forward passes over the tuning examples, and seconds."""
    costs = mean_costs(record for record in records if record["method"] != CLEAN)
    rows = [
        (style_of(method).label, f"{costs[method][1]:.0f}", f"{costs[method][2]:.2f}")
        for method in sorted(costs, key=rank)
    ]
    caption = "Mean cost of one denoised model, tuning and test included"
    return Table(caption, ("method", "passes over the tuning examples", "seconds"), tuple(rows))


def mean_costs(records: Iterable[Record]) -> dict[str, tuple[int, float, float]]:
    """For each method the number of its records, and their mean number of passes and seconds."""
    return {
        method: (
            len(mine),
            sum(float(record.get("num_passes") or 0) for record in mine) / len(mine),
            sum(float(record.get("seconds") or 0) for record in mine) / len(mine),
        )
        for method, mine in grouped(records, lambda record: str(record["method"])).items()
    }


def to_markdown(table: Table) -> str:
    """The table in Markdown, caption first, the notes of its rows below it."""
    notes, rows = Footnotes(), table.rows
    if table.header[-1] == NOTE:
        rows = tuple((*row[:-1], notes.mark(_markdown_text(row[-1])).strip()) for row in rows)
    lines = [_markdown_row(table.header), "|" + "---|" * len(table.header), *map(_markdown_row, rows)]
    return f"**{table.caption}**\n\n" + "\n".join(lines) + (f"\n\n{notes.lines()}" if notes.texts else "")


def to_latex(table: Table) -> str:
    """The table as a LaTeX `tabular` with booktabs rules."""
    rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows]
    head = " & ".join(map(_latex_cell, table.header)) + r" \\"
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [f"% {table.caption}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def to_csv(table: Table) -> str:
    """The table as comma-separated values, header first."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.header, *table.rows])
    return buffer.getvalue()


def _accuracy_cells(curve: Curve, wnrs: Sequence[float]) -> list[str]:
    found = dict(zip(curve.wnr_db.tolist(), zip(curve.mean, curve.std, curve.counts, strict=True), strict=True))
    cells = []
    for wnr in wnrs:
        mean, std, count = found.get(wnr, (math.nan, math.nan, 0))
        fewer = f" ({count} of {curve.num_draws})" if 0 < count < curve.num_draws else ""
        cells.append(f"{curve.quantity.cell(mean, std)}{fewer}" if count else ABSENT)
    return cells


def interval_text(gain: Gain) -> str:
    """The interval as a reader writes it, open where a resample did not cross: `0.50 to ∞`."""
    if gain.low is None or gain.high is None:
        return ABSENT
    low, high = (f"{round(end, 2) + 0.0:.2f}" for end in (gain.low, gain.high))  # no minus before a zero
    return f"{low} to {high}".replace("inf", "∞")


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_markdown_text, cells)) + " |"


def _markdown_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


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
    if sign and all(text.replace(".", "", 1).isdigit() for text in (mean, std)):
        return rf"${mean} \pm {std}$"
    return "".join(_LATEX.get(letter, letter) for letter in cell).replace("±", r"$\pm$")
