"""A search of at most 22 points that fits itself to the noise, instead of a fixed grid of hundreds."""

from collections.abc import Callable, Sequence

import numpy as np

from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.temperatures.grid import try_each
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.steps import Scale
from quietnn.score import Score

THETA_STEP = 0.2
SHIFT_STEP = 0.16

_SQUARE = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
_CORNERS = [(i, j) for i, j in _SQUARE if i and j]


def coarse_to_fine(
    score: Callable[[Temperatures], Score],
    scale: Scale,
    *,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.ACCURACY,
) -> TuningResult[Temperatures]:
    """ML, MMSE and the points around ML, then half steps around the best point, then quarter steps.

    Args:
        score: judges a pair of temperatures; it may raise `InfeasibleTemperatures`.
        scale: the group the temperatures are for; `theta` and the shift move in steps of `THETA_STEP` and, in noise
            standard deviations, `SHIFT_STEP`.
        with_beta: whether to search `beta` too (MMSE_pb) or leave it at zero (MMSE_p).
        criterion: what makes a score better.
    """
    trials: list[Trial[Temperatures]] = []

    def best_with(points: Sequence[Temperatures]) -> Temperatures:
        trials.extend(try_each(score, points))
        return TuningResult.of(trials, criterion).temperatures

    follow_ridge(best_with, scale, with_beta=with_beta)
    return TuningResult.of(trials, criterion)


def follow_ridge(
    best_with: Callable[[Sequence[Temperatures]], Temperatures], scale: Scale, *, with_beta: bool = True
) -> None:
    """Three small squares of points, each around the best so far; the last is tried at its corners only.

    Good points lie on a ridge, not in a box: a larger multiplier goes with a shift that keeps the mean of what the
    next layer sees. Small squares follow the ridge; a wide and coarse grid steps over it.

    Args:
        best_with: takes points that are new and returns the best of all it has been given.
        scale: as for `coarse_to_fine`.
        with_beta: as for `coarse_to_fine`.
    """
    if scale.noise_variance == 0:
        best_with([ML])
        return
    seen: dict[Temperatures, None] = {}
    points, centre = [ML, MMSE], ML
    for size, directions in ((1.0, _SQUARE), (0.5, _SQUARE), (0.25, _CORNERS)):
        theta, shift = scale.theta(centre), scale.shift(centre)
        shift_step = SHIFT_STEP * size if with_beta else 0.0
        points += [scale.temperatures(theta + i * THETA_STEP * size, shift + j * shift_step) for i, j in directions]
        new = [point for point in dict.fromkeys(points) if point not in seen]
        seen.update(dict.fromkeys(new))
        centre, points = best_with(new), []


def even_grid(
    scale: Scale, *, num_thetas: int = 13, num_shifts: int = 11, max_theta: float = 1.4, max_shift: float = 0.2
) -> tuple[Temperatures, ...]:
    """The full grid that `coarse_to_fine` saves most of: even steps in `(theta, shift)`, with ML among them.

    >>> from quietnn.moments import WeightStatistics
    >>> scale = Scale(WeightStatistics(mean=0.0, variance=1.0, num_weights=10), noise_variance=1.0)
    >>> len(even_grid(scale)), ML in even_grid(scale)
    (144, True)
    """
    thetas = np.linspace(scale.smallest_theta, max_theta, num_thetas).tolist()
    shifts = np.linspace(-max_shift, max_shift, num_shifts).tolist()
    return tuple(dict.fromkeys([ML, *(scale.temperatures(theta, shift) for theta in thetas for shift in shifts)]))
