"""The tables of the results pages: means with intervals, gains with intervals, and notes for single cells."""

import re
from functools import cache

import numpy as np

from quietnn.methods import REFERENCE
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.curves import Curve, FloatArray
from quietnn.reports.gains import CONFIDENCE, Gain, crossing
from quietnn.reports.quantities import percent
from quietnn.reports.resampling import student_quantile
from quietnn.reports.tables import ABSENT, Footnotes, Table
from quietnn.reports.titles import counted, level_ticks

FEWEST_DRAWS = 3
"""Below it a mean has no interval: Student's t with one degree of freedom says nothing."""

WIDEST_GAP_DB = 2.0
"""A crossing between two WNRs further apart than this is marked: a straight line is a poor guess there."""

POSTERIOR, INSTEAD = "posterior", ("finetuned", "lora")
"""Our fit to a text, and those that users would make instead."""


def accuracy_table(task: TaskAnalysis, notes: Footnotes) -> Table:
    """Means over draws, each with half of an interval for the mean by Student's t; a row for each method."""
    wnrs = sorted({float(wnr) for curve in task.curves for wnr in curve.measured})
    most = max(curve.num_draws for curve in task.curves)
    rows = [(curve.label, *(_accuracy_cell(curve, wnr, most, notes) for wnr in wnrs)) for curve in task.curves]
    ticks = level_ticks(task.records)
    what = "Test accuracy in per cent" if task.quantity.name == "accuracy" else task.quantity.axis.capitalize()
    caption = f"{what}, mean of {counted(most, 'draw')} and {percent(CONFIDENCE)} interval of that mean"
    return Table(caption, ("method", *(_level_name(wnr, ticks) for wnr in wnrs)), tuple(rows))


def gains_table(task: TaskAnalysis, notes: Footnotes) -> Table:
    """The WNR that each method needs for the level, and its gain over ML."""
    rows = []
    for curve, gain in zip(task.curves, task.gains, strict=True):
        at = crossing(curve, task.level)
        needed = ABSENT if at.wnr_db is None else f"{at.wnr_db:.2f}"
        needed += notes.mark(at.reason or interpolation(curve, task.level))
        needed = unbroken(needed)
        rows.append(
            (
                curve.label,
                needed,
                ABSENT if gain is None else unbroken(gain_cell(gain) + notes.mark(_rest(gain, curve))),
            )
        )
    header = ("method", "WNR needed (dB)", f"gain over ML (dB), {percent(CONFIDENCE)} interval")
    return Table(f"WNR needed to hold {task.quantity.text(task.level)}, and gain over ML", header, tuple(rows))


def gap_table(task: TaskAnalysis, notes: Footnotes) -> Table:
    """The share of the loss that noise adds which each method takes away again: mean and standard error over draws."""
    assert task.clean is not None
    clean, reference = task.clean[0], _curve_of(task, REFERENCE)
    wnrs = [float(wnr) for wnr in reference.measured]
    rows = []
    for curve in task.curves:
        if curve is not reference:
            pairs = [_paired(curve, reference, wnr) for wnr in wnrs]
            shares = [(ours - theirs) / (clean - theirs) for ours, theirs in pairs]
            rows.append((curve.label, *(_error_cell(100 * share, 1, reference, notes) for share in shares)))
    header = ("method", *(f"{wnr:g} dB" for wnr in wnrs))
    return Table("Share of the gap between ML and the clean network that is closed, in per cent", header, tuple(rows))


def lead_table(task: TaskAnalysis, notes: Footnotes) -> Table:
    """By how much the posterior's loss is below that of what users would do instead, draw by draw."""
    best = _curve_of(task, POSTERIOR)
    wnrs = [float(wnr) for wnr in best.measured]
    rows = []
    for curve in task.curves:
        if curve.method in INSTEAD:
            leads = [np.subtract(*_paired(best, curve, wnr)) for wnr in wnrs]
            rows.append((curve.label, *(_error_cell(lead, 3, best, notes) for lead in leads)))
    caption = "Loss of the posterior below that of other fits to the same text, mean and standard error of pairs"
    return Table(caption, ("other fit", *(f"{wnr:g} dB" for wnr in wnrs)), tuple(rows))


def has_method(task: TaskAnalysis, *methods: str) -> bool:
    """Whether a run has curves of all of some methods."""
    return set(methods) <= {curve.method for curve in task.curves}


def _curve_of(task: TaskAnalysis, method: str) -> Curve:
    return next(curve for curve in task.curves if curve.method == method)


def _paired(curve: Curve, other: Curve, wnr_db: float) -> tuple[FloatArray, FloatArray]:
    """The merits of two curves at a WNR in the draws that both have."""
    found = [
        {
            draw: float(merit[0])
            for draw, merit in zip(one.draws, one.merits[:, one.wnr_db == wnr_db], strict=True)
            if merit.size
        }
        for one in (curve, other)
    ]
    shared = [draw for draw in found[0] if draw in found[1]]
    pairs = np.asarray([[one[draw] for draw in shared] for one in found]).reshape(2, -1)
    ours, theirs = pairs[:, np.isfinite(pairs).all(axis=0)]
    return ours, theirs


def _error_cell(values: FloatArray, digits: int, whole: Curve, notes: Footnotes) -> str:
    """A mean and its standard error; a note says where draws are missing."""
    if not len(values):
        return ABSENT
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    few = counted(len(values), "draw") if len(values) < whole.num_draws else ""
    return unbroken(f"{values.mean():.{digits}f}{error}{notes.mark(few)}")


def gain_cell(gain: Gain) -> str:
    """A gain with its interval: `+6.9 (6.0 to 8.0)`; what is known of it where a curve does not cross.

    >>> gain_cell(Gain(0.6, 4.85, 3.27, float("inf"), 6, ""))
    '+4.8 (3.3 or more)'
    >>> gain_cell(Gain(0.6, None, None, None, 6, "stays above; gain above 5.00 dB"))
    'above +5.0'
    """
    if gain.gain_db is None:
        bound = re.search(r"gain above (-?[\d.]+) dB", gain.note)
        return f"above {float(bound[1]):+.1f}" if bound else ABSENT
    text = f"{round(gain.gain_db, 1) + 0.0:+.1f}"
    if gain.low is None or gain.high is None:
        return text
    low, high = (f"{round(end, 1) + 0.0:.1f}" for end in (gain.low, gain.high))
    if np.isinf(gain.low) and np.isinf(gain.high):
        return f"{text} (open)"
    if np.isinf(gain.low):
        return f"{text} (at most {high})"
    return f"{text} ({low} or more)" if np.isinf(gain.high) else f"{text} ({low} to {high})"


def unbroken(text: str) -> str:
    """A cell that a browser does not break, but in front of a bracket."""
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def _accuracy_cell(curve: Curve, wnr_db: float, most: int, notes: Footnotes) -> str:
    place = np.flatnonzero(curve.wnr_db == wnr_db)
    count = int(curve.counts[place[0]]) if len(place) else 0
    if not count:
        return ABSENT
    mean, std = float(curve.mean[place[0]]), float(curve.std[place[0]])
    half = _student(count - 1) * std / count**0.5 if count >= FEWEST_DRAWS else float("nan")
    fewer = counted(count, "draw") + (", too few for an interval" if count < FEWEST_DRAWS else "")
    mark = notes.mark(fewer if count < max(most, FEWEST_DRAWS) else "")
    return unbroken(curve.quantity.cell(mean, half) + mark)


@cache
def _student(degrees: int) -> float:
    return student_quantile(CONFIDENCE, degrees)


def interpolation(curve: Curve, level: float) -> str:
    """A note for a crossing between measurements that are far apart."""
    at, measured = crossing(curve, level).wnr_db, curve.measured
    if at is None:
        return ""
    above, below = measured[measured >= at].min(), measured[measured <= at].max()
    is_wide = above - below > WIDEST_GAP_DB
    return f"interpolated on a straight line between {below:g} and {above:g} dB" if is_wide else ""


def _rest(gain: Gain, curve: Curve) -> str:
    """The note of a gain without what the cells beside it say."""
    said = (f"{curve.label} ", "gain above")
    return "; ".join(part for part in gain.note.split("; ") if not part.startswith(said))


def _level_name(wnr_db: float, ticks: dict[float, str]) -> str:
    return f"{wnr_db:g} dB" + (f", {ticks[wnr_db]}" if wnr_db in ticks else "")
