"""The WNR that holds an accuracy, and the decibels one curve gains over another, with a bootstrap interval."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from quietnn.reports.curves import Curve, FloatArray
from quietnn.reports.quantities import percent

CONFIDENCE = 0.95
"""Of every interval that the reports give."""


@dataclass(frozen=True)
class Crossing:
    """Where a mean curve falls below a level: a WNR, or the plain reason why there is none."""

    wnr_db: float | None
    reason: str = ""


@dataclass(frozen=True)
class Gain:
    """How many decibels less WNR a method needs than the reference to hold a `level`: an accuracy, or another merit.

    The gain is that of the mean curves; None if one of them does not cross. The interval from `low` to `high` is None
    where there is none, and infinite where it is open. The note says what a reader must know: a curve that never
    crosses, missing cells, too few draws.
    """

    level: float
    gain_db: float | None
    low: float | None
    high: float | None
    num_draws: int
    note: str


def crossing(curve: Curve, level: float) -> Crossing:
    """The WNR needed to hold a level: down from the highest WNR, the first fall below it, interpolated linearly."""
    quantity = curve.quantity
    wnr_db, mean = curve.measured, curve.mean[np.isfinite(curve.mean)]
    if not len(wnr_db):
        return Crossing(None, "has no results")
    found = float(_crossings(wnr_db, mean[None, :], level)[0])
    if np.isfinite(found):
        return Crossing(found)
    if found < 0:
        return Crossing(None, f"stays {quantity.better} {quantity.text(level)} down to {wnr_db[0]:g} dB")
    if mean.max() < level:
        return Crossing(None, f"never reaches {quantity.text(level)}")
    return Crossing(None, f"is {quantity.worse} {quantity.text(level)} at {wnr_db[-1]:g} dB, the highest WNR measured")


def gain_db(curve: Curve, reference: Curve, level: float, *, num_resamples: int = 10_000) -> Gain:
    """The horizontal distance between two mean curves at a level, reference minus method.

    The interval is a percentile bootstrap over noise draws, paired: each resample takes the same draws for both
    curves. Its percentiles are expanded for few draws (`expanded_tail`); below six even the widest one covers less
    than 95 % of symmetric noise, at most `1 - 2 ** (1 - num_draws)`, and the note says so. A resample in which only
    one curve crosses counts as an infinite gain or loss; one in which neither does says nothing and is left out; the
    note counts them. At a WNR of both, cells that one of the curves lacks are left out of the other too.
    """
    ours, theirs, notes = _align(curve, reference)
    ours_at, theirs_at = crossing(ours, level), crossing(theirs, level)
    if ours_at.wnr_db is None or theirs_at.wnr_db is None:
        notes = [*_why_no_gain(ours, ours_at, theirs, theirs_at), *notes]
        return Gain(level, None, None, None, ours.num_draws, "; ".join(notes))
    gain = theirs_at.wnr_db - ours_at.wnr_db
    if ours.num_draws < 2:
        return Gain(level, gain, None, None, ours.num_draws, "; ".join(["one draw, so no interval", *notes]))
    resampled = _resampled_gains(ours, theirs, level, num_resamples)
    low, high = _interval(resampled, expanded_tail(CONFIDENCE, ours.num_draws))
    if at_most := covers_at_most(ours.num_draws):
        notes.insert(0, f"interval covers at most {at_most}")
    open_ended = int((~np.isfinite(resampled)).sum())
    if open_ended:
        notes.insert(0, f"in {open_ended} of {num_resamples} resamples a curve does not cross")
    return Gain(level, gain, low, high, ours.num_draws, "; ".join(notes))


def covers_at_most(num_draws: int) -> str:
    """The confidence that an interval over few draws can have at most (see `gain_db`); empty if it has all of it."""
    at_most = 1 - 2.0 ** (1 - num_draws)
    return percent(math.floor(100 * at_most) / 100) if at_most < CONFIDENCE else ""


def _align(curve: Curve, reference: Curve) -> tuple[Curve, Curve, list[str]]:
    """Both curves on the draws that both have, cells that one lacks taken from the other, and what that leaves out.

    A WNR that only one curve was measured at stays, if no draw lacks it there: a crossing needs its own curve only.
    """
    draws = tuple(sorted(set(curve.draws) & set(reference.draws)))
    shared = np.intersect1d(curve.wnr_db, reference.wnr_db)
    missing = np.isnan(_pick(curve, shared, draws)) | np.isnan(_pick(reference, shared, draws))
    aligned, left_out = [], np.empty(0)
    for one in (curve, reference):
        matrix = _pick(one, one.wnr_db, draws)
        matrix[:, np.searchsorted(one.wnr_db, shared)] += np.where(missing, np.nan, 0.0)
        kept = np.isin(one.wnr_db, shared) | np.isfinite(matrix).all(axis=0)
        left_out = np.union1d(left_out, one.wnr_db[~kept])
        aligned.append(replace(one, draws=draws, wnr_db=one.wnr_db[kept], merits=matrix[:, kept]))
    notes = []
    if len(left_out):
        notes.append("not measured for all draws at " + ", ".join(f"{wnr:g}" for wnr in left_out) + " dB")
    if len(draws) < max(curve.num_draws, reference.num_draws):
        notes.append(f"{len(draws)} draws in common of {curve.num_draws} and {reference.num_draws}")
    if missing.any():
        notes.append(f"{int(missing.sum())} of {missing.size} cells missing")
    return aligned[0], aligned[1], notes


def _pick(curve: Curve, wnr_db: FloatArray, draws: tuple[tuple[int, int], ...]) -> FloatArray:
    place = {draw: row for row, draw in enumerate(curve.draws)}
    rows = np.asarray([place[draw] for draw in draws], dtype=np.intp)
    columns = np.searchsorted(curve.wnr_db, wnr_db)
    return curve.merits[np.ix_(rows, columns)].copy()


def _why_no_gain(ours: Curve, ours_at: Crossing, theirs: Curve, theirs_at: Crossing) -> list[str]:
    """The plain statement, and the bound that is left where one curve does cross."""
    if not len(ours.wnr_db) or not len(theirs.wnr_db) or not ours.num_draws:
        return ["nothing measured for both"]
    notes = [f"{one.label} {at.reason}" for one, at in ((ours, ours_at), (theirs, theirs_at)) if at.wnr_db is None]
    if theirs_at.wnr_db is not None and ours_at.reason.startswith("stays"):
        notes.append(f"gain above {theirs_at.wnr_db - ours.measured[0]:.2f} dB")
    if ours_at.wnr_db is not None and theirs_at.reason.startswith(("never", "is ")):
        notes.append(f"gain above {theirs.measured[-1] - ours_at.wnr_db:.2f} dB")
    return notes


def _resampled_gains(ours: Curve, theirs: Curve, level: float, num_resamples: int) -> FloatArray:
    """Gains of resampled draws; infinite where one curve does not cross, NaN where that leaves the sign open."""
    num_draws = ours.num_draws
    generator = np.random.default_rng(0)
    counts = generator.multinomial(num_draws, np.full(num_draws, 1 / num_draws), size=num_resamples).astype(float)
    theirs_at = _crossings(theirs.wnr_db, _resampled_means(counts, theirs.merits), level)
    ours_at = _crossings(ours.wnr_db, _resampled_means(counts, ours.merits), level)
    with np.errstate(invalid="ignore"):
        return np.asarray(theirs_at - ours_at)


def _resampled_means(counts: FloatArray, merits: FloatArray) -> FloatArray:
    """Column means under draw counts, shape `(num_resamples, num_wnrs)`; NaN where a resample has no cell."""
    present = np.isfinite(merits)
    totals = counts @ np.where(present, merits, 0.0)
    weights = counts @ present.astype(float)
    return np.where(weights > 0, totals / np.maximum(weights, 1.0), np.nan)


def _crossings(wnr_db: FloatArray, means: FloatArray, level: float) -> FloatArray:
    """The crossing of each row; +inf where the level is never held, -inf where it never falls below.

    A column that a row lacks is skipped: the line goes straight from one neighbour to the other.
    """
    gaps = np.isnan(means).any(axis=1)
    if gaps.any():
        found = np.full(len(means), np.nan)
        found[~gaps] = _crossings(wnr_db, means[~gaps], level)
        for row in np.flatnonzero(gaps):
            have = np.isfinite(means[row])
            found[row] = _crossings(wnr_db[have], means[row, have][None, :], level)[0] if have.any() else np.nan
        return found
    last = means.shape[1] - 1
    below = means < level
    fall = last - np.argmax(below[:, ::-1], axis=1)
    rows, upper = np.arange(len(means)), np.minimum(fall + 1, last)
    left, right = means[rows, fall], means[rows, upper]
    rise = np.where(right > left, right - left, 1.0)
    found = wnr_db[fall] + (level - left) / rise * (wnr_db[upper] - wnr_db[fall])
    found = np.where(below[:, last], np.inf, found)
    return np.where(below.any(axis=1), found, -np.inf)


def _interval(gains: FloatArray, tail: float) -> tuple[float | None, float | None]:
    """Percentiles by order statistics, so that an infinite gain makes an open interval and not a NaN."""
    known = gains[~np.isnan(gains)]
    if not len(known):
        return None, None
    low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def expanded_tail(confidence: float, num_draws: int) -> float:
    """The tail to cut from a bootstrap distribution of few draws so that the interval keeps its confidence.

    A bootstrap spreads `sqrt((n - 1) / n)` too little and knows no t; the expanded percentile interval makes up for
    both, `tail = Phi(-sqrt(n / (n - 1)) t)` (Hesterberg, What Teachers Should Know About the Bootstrap, The American
    Statistician 69(4), 2015).
    """
    stretch = math.sqrt(num_draws / (num_draws - 1)) * student_quantile(confidence, num_draws - 1)
    return NormalDist().cdf(-stretch)


def student_quantile(confidence: float, degrees: int) -> float:
    """The `t` that a Student variable of whole degrees of freedom stays within, on both sides; no scipy needed.

    The angle of `t = sqrt(degrees) tan(angle)` has the density `cos(angle) ** (degrees - 1)`, up to a factor.
    """
    angles = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (degrees - 1)
    mass = np.cumsum(density) - (density + density[0]) / 2  # by trapezoids
    angle = float(np.interp(confidence, mass / mass[-1], angles))
    return math.sqrt(degrees) * math.tan(angle)
