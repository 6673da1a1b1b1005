"""A bootstrap over noise draws and, where records hold every answer, over test examples.

Each resample draws both anew (Owen, The pigeonhole bootstrap, Annals of Applied Statistics 1(2), 2007).
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from quietnn.reports.curves import Curve, FloatArray

_MOST_COUNTS = 1 << 22
"""Counts of examples that are held at once: 32 MB."""


def resampled_means(ours: Curve, theirs: Curve, num_resamples: int) -> tuple[FloatArray, FloatArray]:
    """The mean curves of resamples, shape `(num_resamples, num_wnrs)` each; NaN where a resample has no result.

    Both curves have the same draws (`gains.align`). Curves that were tested on the same examples share these too.
    """
    num_draws = ours.num_draws
    generator = np.random.default_rng(0)
    draws = generator.multinomial(num_draws, np.full(num_draws, 1 / num_draws), size=num_resamples).astype(float)
    return _means(ours, draws, 1), _means(theirs, draws, 1 if theirs.tested == ours.tested else 2)


def _means(curve: Curve, draws: FloatArray, seed: int) -> FloatArray:
    present = np.isfinite(curve.merits)
    weights = draws @ present.astype(float)
    if curve.right is None:
        totals = draws @ np.where(present, curve.merits, 0.0)
    else:
        cells = _resampled_accuracies(curve.right.reshape(-1, curve.right.shape[2]), len(draws), seed)
        totals = np.einsum("rd,rdw,dw->rw", draws, cells.reshape(len(draws), *curve.merits.shape), present)
    return np.where(weights > 0, totals / np.maximum(weights, 1.0), np.nan)


def _resampled_accuracies(right: NDArray[np.bool_], num_resamples: int, seed: int) -> FloatArray:
    """The accuracy of each row of answers on resampled examples, shape `(num_resamples, num_rows)`."""
    num_examples = right.shape[1]
    generator = np.random.default_rng(seed)
    answers = right.T.astype(float) / num_examples
    parts = []
    at_once = max(_MOST_COUNTS // num_examples, 1)
    for first in range(0, num_resamples, at_once):
        num = min(at_once, num_resamples - first)
        taken = generator.integers(num_examples, size=(num, num_examples)) + np.arange(num)[:, None] * num_examples
        counts = np.bincount(taken.ravel(), minlength=num * num_examples).reshape(num, num_examples)
        parts.append(counts @ answers)
    return np.concatenate(parts)


def percentiles(gains: FloatArray, tail: float) -> tuple[float | None, float | None]:
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


@cache
def student_quantile(confidence: float, degrees: int) -> float:
    """The `t` that a Student variable of whole degrees of freedom stays within, on both sides; no scipy needed.

    The angle of `t = sqrt(degrees) tan(angle)` has the density `cos(angle) ** (degrees - 1)`, up to a factor.
    """
    angles = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (degrees - 1)
    mass = np.cumsum(density) - (density + density[0]) / 2  # by trapezoids
    angle = float(np.interp(confidence, mass / mass[-1], angles))
    return math.sqrt(degrees) * math.tan(angle)
