"""Values that differ by more than their own errors: how much, and what that says of each (empirical Bayes)."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_STEPS = 300
TOLERANCE = 1e-9
"""How close to its target a search for a variance ends."""

SMALLEST = 1e-18
"""An error of nothing, in units of the largest variance: a tensor of one value without noise is told exactly."""

_TINY = torch.finfo(torch.float32).tiny
_FAR = 100.0
"""Standard deviations below zero at which the mean of what is above it is as good as none, and still has its digits."""


def excess_variance(squares: Tensor, known: Tensor, scale: Tensor) -> float:
    """The `g >= 0` with `mean_c(squares_c / (known_c + g scale_c)) = 1`: a random-effects variance.

    Deviations should have variance `known`; `g scale` is what they have on top of it (Paule and Mandel 1982).

    >>> round(excess_variance(torch.tensor([3.0, 3.0]), known=torch.tensor([1.0, 1.0]), scale=torch.ones(2)), 6)
    2.0
    >>> excess_variance(torch.tensor([0.5]), known=torch.tensor([1.0]), scale=torch.ones(1))
    0.0
    """

    def look(excess: float) -> tuple[float, float]:
        total = (known + excess * scale).clamp_min(_TINY)
        ratios = squares / total
        return float(ratios.mean()) - 1, float((ratios * scale / total).mean())

    return _spread(look)


def shrunk(values: Sequence[float], errors: Sequence[float]) -> list[float]:
    """Values with known error variances, each brought towards their centre by as much as it is uncertain.

    >>> shrunk([1.0, 3.0], errors=[10.0, 10.0])
    [2.0, 2.0]
    >>> [round(value, 3) for value in shrunk([1.0, 3.0], errors=[0.5, 0.5])]
    [1.25, 2.75]
    """
    errors = [max(error, SMALLEST) for error in errors]

    def look(spread: float) -> tuple[float, float]:
        centre = _weighted_mean(values, [error + spread for error in errors])
        ratios = [(value - centre) ** 2 / (error + spread) for value, error in zip(values, errors, strict=True)]
        slope = math.fsum(ratio / (error + spread) for ratio, error in zip(ratios, errors, strict=True))
        return math.fsum(ratios) - (len(values) - 1), slope

    spread = _spread(look)
    centre = _weighted_mean(values, [error + spread for error in errors])
    return [centre + spread / (spread + error) * (value - centre) for value, error in zip(values, errors, strict=True)]


def beyond_error(seen: Tensor, error: Tensor | float) -> Tensor:
    """The share of a squared deviation that its sampling error does not explain (James and Stein's positive part).

    >>> beyond_error(torch.tensor([4.0, 1.0]), error=2.0)
    tensor([0.5000, 0.0000])
    """
    return (1.0 - error / seen).clamp_min(0.0)


def positive_mean(values: Tensor, error: float) -> Tensor:
    """The mean of `N(value, error)` cut off at zero: what a power is worth that is told with this error variance.

    It is never zero where there is an error: a power that few numbers tell may look like nothing by chance.

    >>> positive_mean(torch.tensor([-1.0, 0.0, 9.0], dtype=torch.float64), error=1.0).round(decimals=2)
    tensor([0.5300, 0.8000, 9.0000], dtype=torch.float64)
    >>> positive_mean(torch.tensor([-1.0, 9.0]), error=0.0)
    tensor([0., 9.])
    """
    if error <= 0:
        return values.clamp_min(0)
    std = math.sqrt(error)
    ratio = (values / std).clamp_min(-_FAR)
    hazard = torch.exp(-ratio.square() / 2 - torch.special.log_ndtr(ratio)) / math.sqrt(2 * math.pi)
    return std * (ratio + hazard)


def _spread(look: Callable[[float], tuple[float, float]]) -> float:
    """The variance at which a surplus is gone; `look` tells the surplus at a variance, and how fast it falls there.

    The surplus is convex and falls, so Newton's steps from the left never overshoot.
    """
    spread = 0.0
    for _ in range(_STEPS):
        surplus, slope = look(spread)
        if surplus <= TOLERANCE:
            break
        spread += surplus / slope
    return spread


def _weighted_mean(values: Sequence[float], variances: Sequence[float]) -> float:
    weight = math.fsum(1 / variance for variance in variances)
    return math.fsum(value / variance for value, variance in zip(values, variances, strict=True)) / weight
