"""Grid search over `(lambda', beta)`, as in the paper's Section V-B."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.score import Score

Point = TypeVar("Point")


def product_grid(lambda_primes: Iterable[float], betas: Iterable[float]) -> tuple[Temperatures, ...]:
    """Every pair of a `lambda'` and a `beta`.

    >>> product_grid([0.0, 1.0], [0.5])
    (Temperatures(lambda_prime=0.0, beta=0.5), Temperatures(lambda_prime=1.0, beta=0.5))
    """
    return tuple(Temperatures(x, y) for x, y in itertools.product(lambda_primes, tuple(betas)))


def _steps(start: float, stop: float, step: float) -> list[float]:
    return [round(start + i * step, 10) for i in range(round((stop - start) / step) + 1)]


AUTHORS_GRIDS: dict[str, tuple[Temperatures, ...]] = {
    "resnet": product_grid(_steps(0.95, 1.06, 0.01), _steps(-4.0, 0.4, 0.2)),
    "shufflenetv2": product_grid(_steps(0.9, 1.15, 0.01), _steps(-4.0, 4.0, 0.5)),
    "bert": product_grid(
        [0.02, 0.04, 0.06, 0.08, *_steps(0.1, 1.1, 0.05)], [-30.0, -20.0, -15.0, *_steps(-10.0, 50.0, 2.0)]
    ),
}
"""The grids of the paper's authors, for comparison. They cross the pole at low WNR."""


def search_grid(
    score: Callable[[Point], Score], grid: Sequence[Point], *, criterion: Criterion | str = Criterion.ACCURACY
) -> TuningResult[Point]:
    """Score every point of a grid; a point past the pole is recorded as infeasible and cannot win.

    >>> result = search_grid(lambda t: Score(accuracy=1 - abs(t.beta), loss=0.0, num_examples=1),
    ...                      product_grid([1.0], [-0.5, 0.25]))
    >>> result.temperatures
    Temperatures(lambda_prime=1.0, beta=0.25)
    """
    if not grid:
        raise InvalidConfig("the grid is empty; give at least one pair of temperatures")
    return TuningResult.of(try_each(score, grid), criterion)


def try_each(score: Callable[[Point], Score], points: Iterable[Point]) -> Iterator[Trial[Point]]:
    """One trial per point, with no score where the point is infeasible."""
    for point in points:
        try:
            yield Trial(point, score(point))
        except InfeasibleTemperatures:
            yield Trial(point, None)
