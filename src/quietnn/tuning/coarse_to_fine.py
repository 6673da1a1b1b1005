"""A search of at most 22 points that fits itself to the noise, instead of a fixed grid of hundreds."""

from collections.abc import Callable

import numpy as np

from quietnn.denoisers.affine import ML, MMSE, Temperatures
from quietnn.tuning.grid import try_each
from quietnn.tuning.result import Criterion, TuningResult
from quietnn.tuning.score import Score
from quietnn.tuning.steps import Scale

COARSE_THETAS = 5
MAX_THETA = 1.4
MAX_SHIFT = 0.2


def even_grid(scale: Scale, *, num_thetas: int = 13, num_shifts: int = 11) -> tuple[Temperatures, ...]:
    """The full grid that `coarse_to_fine` saves most of: even steps in `(theta, shift)`, with ML among them.

    >>> from quietnn.weights import WeightStatistics
    >>> scale = Scale(WeightStatistics(mean=0.0, variance=1.0, num_weights=10), noise_variance=1.0)
    >>> len(even_grid(scale)), ML in even_grid(scale)
    (144, True)
    """
    thetas = np.linspace(scale.smallest_theta, MAX_THETA, num_thetas).tolist()
    shifts = np.linspace(-MAX_SHIFT, MAX_SHIFT, num_shifts).tolist()
    return tuple(dict.fromkeys([ML, *(scale.temperatures(theta, shift) for theta in thetas for shift in shifts)]))


def coarse_to_fine(
    score: Callable[[Temperatures], Score],
    scale: Scale,
    *,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.ACCURACY,
) -> TuningResult[Temperatures]:
    """ML, MMSE and an even coarse grid of `(theta, shift)`, then half steps around the best point.

    `theta` runs from MMSE's to `MAX_THETA`, the shift over `MAX_SHIFT` noise standard deviations to either side.

    Args:
        score: judges a pair of temperatures; it may raise `InfeasibleTemperatures`.
        scale: the group the temperatures are for.
        with_beta: whether to search `beta` too (MMSE_pb) or leave it at zero (MMSE_p).
        criterion: what makes a score better.
    """
    if scale.noise_variance == 0:
        return TuningResult.of(try_each(score, [ML]), criterion)
    thetas = np.linspace(scale.smallest_theta, MAX_THETA, COARSE_THETAS).tolist()
    shifts = [-MAX_SHIFT, 0.0, MAX_SHIFT] if with_beta else [0.0]
    coarse = [ML, MMSE, *(scale.temperatures(theta, shift) for theta in thetas[1:] for shift in shifts)]
    trials = list(try_each(score, dict.fromkeys(coarse)))

    best = TuningResult.of(trials, criterion).temperatures
    theta, shift = scale.theta(best), scale.shift(best)
    theta_step, shift_step = (thetas[1] - thetas[0]) / 2, MAX_SHIFT / 2 if with_beta else 0.0
    fine = [scale.temperatures(theta + i * theta_step, shift + j * shift_step) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    seen = {trial.temperatures for trial in trials}
    trials += try_each(score, (point for point in dict.fromkeys(fine) if point not in seen))
    return TuningResult.of(trials, criterion)
