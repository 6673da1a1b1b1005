"""How a method stands against the weights as received: a gain in dB, a bound on it, or a change at one WNR."""

import math
from dataclasses import dataclass

import numpy as np

from quietnn.methods import REFERENCE, is_oracle
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.curves import Curve
from quietnn.reports.gains import CONFIDENCE, Gain, align, gain_db
from quietnn.reports.resampling import student_quantile

NUM_RESAMPLES = 2_000
"""Bootstrap resamples to tell two repairs apart: a yes or no, made for every pair of them."""


@dataclass(frozen=True)
class Change:
    """The mean merit of a reference (`before`) and of a method (`after`) at one WNR, over the draws that both have.

    The interval from `low` to `high` is Student's for the mean of paired differences; None for one draw.
    """

    wnr_db: float
    before: float
    after: float
    low: float | None
    high: float | None
    num_draws: int


@dataclass(frozen=True, eq=False)
class Standing:
    """A method's curve at its `place` in the task, and what it does to ML: the gain, and the change at one WNR."""

    place: int
    curve: Curve
    gain: Gain
    change: Change | None

    @property
    def above(self) -> float | None:
        """The bound on a gain that cannot be read, if it says that the method helps."""
        return self.gain.above if self.gain.above is not None and self.gain.above > 0 else None

    @property
    def size(self) -> float:
        """Decibels to rank by: the gain or its bound; without either 0 for a change to the better."""
        if self.gain.gain_db is not None:
            return self.gain.gain_db
        if self.above is not None:
            return self.above
        return 0.0 if self._rise > 0 else -math.inf

    @property
    def helps(self) -> bool:
        """Whether the means say that the method is better than ML."""
        return self.size > 0 or (self.gain.gain_db is None and self.size == 0)

    @property
    def low(self) -> float | None:
        """The lower end of the interval that speaks for this method; None where there is no interval."""
        if self.gain.gain_db is not None:
            return self.gain.low
        return None if self.change is None else self.change.low

    @property
    def order(self) -> tuple[float, float]:
        """What standings are sorted by, the best highest."""
        return self.size, self._rise

    @property
    def _rise(self) -> float:
        return 0.0 if self.change is None else self.change.after - self.change.before


def standings(task: TaskAnalysis) -> list[Standing]:
    """Every method that can be compared with ML, the best first; oracles are bounds and never stand here."""
    found = [
        Standing(place, curve, gain, change_between(curve, reference, task.level))
        for place, (curve, reference, gain) in enumerate(zip(task.curves, task.references, task.gains, strict=True))
        if reference is not None and gain is not None and curve.method != REFERENCE and not is_oracle(curve.method)
    ]
    return sorted(found, key=lambda one: one.order, reverse=True)


def change_between(curve: Curve, reference: Curve, level: float) -> Change | None:
    """What a method makes of the reference at the lowest WNR where it holds the level.

    If it holds it nowhere, the WNR is the one where it does best. None without a draw and a WNR in common.
    """
    ours, theirs, _ = align(curve, reference)
    shared = np.intersect1d(ours.wnr_db, theirs.wnr_db)
    after, before = (one.merits[:, np.searchsorted(one.wnr_db, shared)] for one in (ours, theirs))
    counts = np.isfinite(after).sum(axis=0) if len(after) else np.zeros(len(shared))
    if not counts.any():
        return None
    means = np.where(counts > 0, np.nansum(after, axis=0) / np.maximum(counts, 1), -np.inf)
    held = np.flatnonzero(means >= level)
    at = int(held[0]) if len(held) else int(np.argmax(means))
    known = np.isfinite(after[:, at])
    differences = after[known, at] - before[known, at]
    low, high = _student_interval(differences)
    return Change(float(shared[at]), float(before[known, at].mean()), float(means[at]), low, high, int(known.sum()))


def told_apart(better: Curve, other: Curve, level: float) -> bool | None:
    """Whether the interval of one curve's lead over another leaves zero out; None where there is no interval.

    The lead is the gain in dB, or the change at one WNR where there is no gain to read.
    """
    gain = gain_db(better, other, level, num_resamples=NUM_RESAMPLES)
    if gain.gain_db is not None:
        return None if gain.low is None else gain.low > 0
    change = change_between(better, other, level)
    return None if change is None or change.low is None else change.low > 0


def _student_interval(differences: np.ndarray) -> tuple[float | None, float | None]:
    count = len(differences)
    if count < 2:
        return None, None
    middle = float(differences.mean())
    reach = student_quantile(CONFIDENCE, count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return middle - reach, middle + reach
