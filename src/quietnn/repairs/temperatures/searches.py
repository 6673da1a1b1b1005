"""Searches for the temperatures that score best: grids, squares around the best point so far, group after group."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from quietnn.errors import InfeasibleTemperatures
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.repairs.temperatures.result import Criterion, Tried, TuningResult, try_each
from quietnn.repairs.temperatures.steps import Scale, scales
from quietnn.score import Score

_SQUARE = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
_CORNERS = [(i, j) for i, j in _SQUARE if i and j]

THETA_STEP = 0.2
SHIFT_STEP = 0.16
"""The first steps of `theta`, and of the shift in noise standard deviations."""

LOG_THETA_STEP = 0.2
"""The first step of `log theta` in a search in natural units; that of the shift is one unit."""

NUM_HALVINGS = 2
"""How often the steps of a search in natural units are halved."""

MAX_MOVES = 4
"""Squares at one size before the steps are halved anyway."""

LAYER_THETA_FACTORS = (0.8, 1.25)
LAYER_SHIFT_STEP = 0.1
"""The first steps of a group in the coordinate search."""


def product_grid(lambda_primes: Iterable[float], betas: Iterable[float]) -> tuple[Temperatures, ...]:
    """Every pair of a `lambda'` and a `beta`.

    >>> product_grid([0.0, 1.0], [0.5])
    (Temperatures(lambda_prime=0.0, beta=0.5), Temperatures(lambda_prime=1.0, beta=0.5))
    """
    return tuple(Temperatures(x, y) for x, y in itertools.product(lambda_primes, tuple(betas)))


def _steps(start: float, stop: float, step: float) -> list[float]:
    return [round(start + i * step, 10) for i in range(round((stop - start) / step) + 1)]


AUTHORS_GRIDS = {
    "resnet": (_steps(0.95, 1.06, 0.01), _steps(-4.0, 0.4, 0.2)),
    "shufflenetv2": (_steps(0.9, 1.15, 0.01), _steps(-4.0, 4.0, 0.5)),
    "bert": ([0.02, 0.04, 0.06, 0.08, *_steps(0.1, 1.1, 0.05)], [-30.0, -20.0, -15.0, *_steps(-10.0, 50.0, 2.0)]),
}
"""The grids of the paper's authors for comparison: `lambda'` and `beta`. They cross the pole at low WNR."""


def even_grid(scale: Scale) -> tuple[Temperatures, ...]:
    """The full grid that `coarse_to_fine` saves most of: even steps in `(theta, shift)`, with ML among them.

    >>> from quietnn.moments import WeightStatistics
    >>> scale = Scale(WeightStatistics(mean=0.0, variance=1.0, num_weights=10), noise_variance=1.0)
    >>> len(even_grid(scale)), ML in even_grid(scale)
    (144, True)
    """
    thetas = np.linspace(scale.smallest_theta, 1.4, 13).tolist()
    shifts = np.linspace(-0.2, 0.2, 11).tolist()
    return tuple(dict.fromkeys([ML, *(scale.temperatures(theta, shift) for theta in thetas for shift in shifts)]))


def coarse_to_fine(tried: Tried[Temperatures], scale: Scale, *, with_beta: bool = True) -> TuningResult[Temperatures]:
    """ML, MMSE and the points around ML, then half steps around the best point, then quarter steps: 22 at most.

    Good points lie on a ridge, not in a box: a larger multiplier goes with a shift that keeps the mean of what the
    next layer sees. Small squares follow the ridge, the last at its corners only; a wide and coarse grid steps over it.
    """
    if scale.noise_variance == 0:
        return tried.on([ML])
    points, centre = [ML, MMSE], ML
    for size, directions in ((1.0, _SQUARE), (0.5, _SQUARE), (0.25, _CORNERS)):
        theta, shift = scale.theta(centre), scale.shift(centre)
        shift_step = SHIFT_STEP * size if with_beta else 0.0
        points += [scale.temperatures(theta + i * THETA_STEP * size, shift + j * shift_step) for i, j in directions]
        found = tried.on(points, pinned=(ML,))  # so that the winner is as good as ML on all examples, or better
        centre, points = found.temperatures, []
    return found


def search_natural(
    tried: Tried[Temperatures], scale: Scale, unit: float, *, with_beta: bool = True
) -> TuningResult[Temperatures]:
    """ML, MMSE and multipliers between them, then squares of points that follow the best one and shrink around it.

    A square whose best point lies on its border is moved there at the same size; one whose best point is its centre has
    the optimum between its points, and the steps are halved. `unit` is that of the shift, see `natural_unit`.
    """
    found = tried.on([ML, MMSE, *_between(scale)])
    for halving in range(NUM_HALVINGS + 1 if scale.noise_variance and scale.statistics.variance else 0):
        theta_factor = math.exp(LOG_THETA_STEP * 0.5**halving)
        shift_step = unit * 0.5**halving if with_beta else 0.0
        for _ in range(MAX_MOVES):
            centre = found.temperatures
            theta, shift = scale.theta(centre), scale.shift(centre)
            found = tried.on([scale.temperatures(theta * theta_factor**i, shift + j * shift_step) for i, j in _SQUARE])
            if found.temperatures == centre:
                break
    return found


def _between(scale: Scale) -> list[Temperatures]:
    """Multipliers from MMSE's up to ML's, at most twice the step apart in `log theta`; no shift."""
    if not scale.noise_variance or not scale.statistics.variance:
        return []
    low = math.log(scale.smallest_theta)
    num_gaps = max(math.ceil(-low / (2.0 * LOG_THETA_STEP)), 1)
    return [scale.temperatures(math.exp(low * index / num_gaps), 0.0) for index in range(1, num_gaps)]


def search_layerwise(
    score: Callable[[GroupTemperatures], Score],
    by_group: GroupedWeights,
    start: GroupTemperatures,
    *,
    num_sweeps: int = 1,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.LOSS,
    shift_steps: Mapping[str, float] | None = None,
) -> TuningResult[GroupTemperatures]:
    """Visit the groups one by one; at each, try a larger and a smaller multiplier and shift, keep what is better.

    A sweep costs at most four scores a group. The steps are halved from sweep to sweep. Judging by loss (the default)
    follows small improvements that accuracy on a hundred examples cannot resolve. The steps of the shifts are in noise
    standard deviations.
    """
    criterion = Criterion(criterion)
    trials = list(try_each(score, [start]))
    best = trials[0]
    if best.score is None:
        raise InfeasibleTemperatures("the start of a layerwise search is infeasible; start it from ML or MMSE")
    for sweep in range(num_sweeps if by_group.noise_variance else 0):
        for group, scale in scales(by_group).items():
            shift_step = (LAYER_SHIFT_STEP if shift_steps is None else shift_steps[group]) if with_beta else 0.0
            points = [
                {**best.temperatures, group: candidate}
                for candidate in _neighbours(scale, best.temperatures[group], 0.5**sweep, shift_step)
            ]
            new = list(try_each(score, points))
            trials += new
            best = TuningResult.of([best, *new], criterion).best
    return TuningResult(best, tuple(trials))


def _neighbours(scale: Scale, temperatures: Temperatures, step: float, shift_step: float) -> list[Temperatures]:
    """The points a step away; of a group that shows no signal, only keeping it or replacing it by its mean is left."""
    theta, shift = scale.theta(temperatures), scale.shift(temperatures)
    if scale.statistics.variance == 0:
        candidates = [ML, MMSE]
    else:
        candidates = [scale.temperatures(theta * factor**step, shift) for factor in LAYER_THETA_FACTORS]
        candidates += [scale.temperatures(theta, shift + sign * shift_step * step) for sign in (-1, 1)]
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != temperatures]
