"""The WNR that holds an accuracy, and the decibels one curve gains over another, with a bootstrap interval."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietnn.reports.curves import Curve, FloatArray
from quietnn.reports.quantities import percent
from quietnn.reports.resampling import expanded_tail, percentiles, resampled_means

CONFIDENCE = 0.95
"""Of every interval that the reports give."""


@dataclass(frozen=True)
class Crossing:
    """Where a mean curve falls below a level: a WNR, or the plain reason why there is none.

    Without a WNR, `holds` says whether the level is held at the highest WNR measured; None if nothing was.
    """

    wnr_db: float | None
    reason: str = ""
    holds: bool | None = None


@dataclass(frozen=True)
class Gain:
    """How many decibels less WNR a method needs than the reference to hold a `level`: an accuracy, or another merit.

    The gain is that of the mean curves; None if one of them does not cross. The interval from `low` to `high` is None
    where there is none, and infinite where it is open. The note says what a reader must know: a curve that never
    crosses, missing cells, too few draws. Where there is no gain because of the range that was measured, `above` is
    the bound that is left: the gain is larger.
    """

    level: float
    gain_db: float | None
    low: float | None
    high: float | None
    num_draws: int
    note: str
    above: float | None = None


def crossing(curve: Curve, level: float) -> Crossing:
    """The WNR needed to hold a level: down from the highest WNR, the first fall below it, interpolated linearly."""
    quantity = curve.quantity
    wnr_db, mean = curve.measured, curve.mean[np.isfinite(curve.mean)]
    if not len(wnr_db):
        return Crossing(None, "has no results")
    found = float(_crossings(wnr_db, mean[None, :], level)[0])
    if np.isfinite(found):
        return Crossing(found)
    holds = found < 0
    side = f"{quantity.better if holds else quantity.worse} {quantity.text(level)}"
    low, high = (f"{end:g} dB" for end in (wnr_db[0], wnr_db[-1]))
    if len(wnr_db) == 1:
        return Crossing(None, f"is {side} at {low}, the only WNR measured", holds)
    if holds:
        return Crossing(None, f"stays {side} down to {low}", holds)
    if mean.max() < level:
        return Crossing(None, f"stays {side} up to {high}", holds)
    return Crossing(None, f"is {side} at {high}, the highest WNR measured", holds)


def gain_db(curve: Curve, reference: Curve, level: float, *, num_resamples: int = 10_000) -> Gain:
    """The horizontal distance between two mean curves at a level, reference minus method.

    The interval is a percentile bootstrap over noise draws and, where records hold every answer, over test examples
    too (`resampling.py`). It is paired: each resample takes the same draws and examples for both curves. Its
    percentiles are expanded for few draws (`expanded_tail`); below six even the widest one covers less than 95 % of
    symmetric noise, at most `1 - 2 ** (1 - num_draws)`, and the note says so. A resample in which only one curve
    crosses counts as an infinite gain or loss; one in which neither does says nothing and is left out; the note counts
    them. At a WNR of both, cells that one of the curves lacks are left out of the other too.
    """
    ours, theirs, notes = align(curve, reference)
    ours_at, theirs_at = crossing(ours, level), crossing(theirs, level)
    if ours_at.wnr_db is None or theirs_at.wnr_db is None:
        above = _bound(ours, ours_at, theirs, theirs_at)
        notes = [*_why_no_gain(ours, ours_at, theirs, theirs_at, above), *notes]
        return Gain(level, None, None, None, ours.num_draws, "; ".join(notes), above)
    gain = theirs_at.wnr_db - ours_at.wnr_db
    if ours.num_draws < 2:
        return Gain(level, gain, None, None, ours.num_draws, "; ".join(["one draw, so no interval", *notes]))
    our_means, their_means = resampled_means(ours, theirs, num_resamples)
    ours_found, theirs_found = _crossings(ours.wnr_db, our_means, level), _crossings(theirs.wnr_db, their_means, level)
    with np.errstate(invalid="ignore"):  # neither curve crosses: the sign is open
        resampled = np.asarray(theirs_found - ours_found)
    low, high = percentiles(resampled, expanded_tail(CONFIDENCE, ours.num_draws))
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


def align(curve: Curve, reference: Curve) -> tuple[Curve, Curve, list[str]]:
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
        right = None if one.right is None else one.right[np.ix_(_rows(one, draws), np.flatnonzero(kept))]
        aligned.append(replace(one, draws=draws, wnr_db=one.wnr_db[kept], merits=matrix[:, kept], right=right))
    notes = []
    if len(left_out):
        notes.append("not measured for all draws at " + ", ".join(f"{wnr:g}" for wnr in left_out) + " dB")
    if len(draws) < max(curve.num_draws, reference.num_draws):
        notes.append(f"{len(draws)} draws in common of {curve.num_draws} and {reference.num_draws}")
    if missing.any():
        notes.append(f"{int(missing.sum())} of {missing.size} cells missing")
    return aligned[0], aligned[1], notes


def _pick(curve: Curve, wnr_db: FloatArray, draws: tuple[tuple[int, int], ...]) -> FloatArray:
    columns = np.searchsorted(curve.wnr_db, wnr_db)
    return curve.merits[np.ix_(_rows(curve, draws), columns)].copy()


def _rows(curve: Curve, draws: tuple[tuple[int, int], ...]) -> NDArray[np.intp]:
    place = {draw: row for row, draw in enumerate(curve.draws)}
    return np.asarray([place[draw] for draw in draws], dtype=np.intp)


def _bound(ours: Curve, ours_at: Crossing, theirs: Curve, theirs_at: Crossing) -> float | None:
    """What a gain must exceed where our curve crosses below the range measured, or the reference above it."""
    low, high = ours_at.wnr_db, theirs_at.wnr_db
    if ours_at.holds:
        low = float(ours.measured[0])
    if theirs_at.holds is False:
        high = float(theirs.measured[-1])
    return None if low is None or high is None else high - low


def _why_no_gain(ours: Curve, ours_at: Crossing, theirs: Curve, theirs_at: Crossing, above: float | None) -> list[str]:
    """The plain statement, and the bound that is left where there is one."""
    if not len(ours.wnr_db) or not len(theirs.wnr_db) or not ours.num_draws:
        return ["nothing measured for both"]
    notes = [f"{one.label} {at.reason}" for one, at in ((ours, ours_at), (theirs, theirs_at)) if at.wnr_db is None]
    return notes if above is None else [*notes, f"gain above {above:.2f} dB"]


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
