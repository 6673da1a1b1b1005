"""Racing: most points are told from the best by a few examples; only the best few see them all.

Successive halving (Karnin et al. 2013, Jamieson and Talwalkar 2016) with examples as the budget. All points of a race
see the same examples in the same order, so their losses are compared in pairs, and no example is looked at twice.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.searches import follow_ridge
from quietnn.repairs.temperatures.steps import Scale
from quietnn.score import Score, pooled

Point = TypeVar("Point")

ScoreSome = Callable[[Point, Tensor], Score]
"""Judges a point by the examples at some positions; it may raise `InfeasibleTemperatures`."""

GROWTH = 3
"""How many times as many examples each round sees."""

KEEP = 4
"""One point in so many goes on to the next round."""

MAX_CUTS = 3
"""With more, the first round would see less than one example in 27."""


def race(
    score: ScoreSome[Point],
    points: Sequence[Point],
    num_examples: int,
    *,
    criterion: Criterion | str = Criterion.LOSS,
    seed: int = 0,
) -> TuningResult[Point]:
    """Drop three points of four after each round, the next of which sees three times as many examples.

    Rounds are cut by loss, which tells points apart on ten examples where accuracy ties. 276 points cost 23 passes. The
    result holds every trial with as many examples as it saw; `criterion` ranks those that saw all.

    >>> result = race(lambda x, some: Score(0.0, (x - 3) ** 2, len(some)), range(16), num_examples=90)
    >>> result.temperatures, sorted(trial.score.num_examples for trial in result.trials)[-4:], result.num_passes
    (3, [30, 30, 30, 90], 3.3333333333333335)
    """
    if not points:
        raise InvalidConfig("there is no point to race; give at least one")
    field = _Field(score, num_examples, seed)
    field.run(points)
    return field.result(criterion)


def race_coarse_to_fine(
    score: ScoreSome[Temperatures],
    scale: Scale,
    num_examples: int,
    *,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.LOSS,
    seed: int = 0,
) -> TuningResult[Temperatures]:
    """The squares of `coarse_to_fine`, each of them a race that the best so far and ML run to its end."""
    field = _Field(score, num_examples, seed)

    def best_with(points: Sequence[Temperatures]) -> Temperatures:
        field.run(points, pinned=(ML,))  # never dropped, so that the winner is as good on all examples, or better
        return field.result(criterion).temperatures

    follow_ridge(best_with, scale, with_beta=with_beta)
    return field.result(criterion)


class _Field(Generic[Point]):
    """Points and what is known of each: its score on the first so many examples."""

    def __init__(self, score: ScoreSome[Point], num_examples: int, seed: int) -> None:
        if num_examples < 1:
            raise InvalidConfig(f"num_examples is {num_examples}; racing needs 1 or more")
        self._score = score
        self._order = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed))
        self._known: dict[Point, Score | None] = {}

    def run(self, points: Sequence[Point], pinned: Collection[Point] = ()) -> None:
        """Race the points; those pinned and those that survive see all examples."""
        left = list(dict.fromkeys(points))
        for num_examples in rounds(len(left), len(self._order)):
            scores = {point: self._look(point, num_examples) for point in left}
            if num_examples < len(self._order):
                left = _survivors(scores, pinned)

    def result(self, criterion: Criterion | str) -> TuningResult[Point]:
        """The best of those that saw all examples, and everyone's last score."""
        trials = tuple(Trial(point, score) for point, score in self._known.items())
        finalists = [trial for trial in trials if trial.score and trial.score.num_examples == len(self._order)]
        return TuningResult(TuningResult.of(finalists or trials, criterion).best, trials)

    def _look(self, point: Point, num_examples: int) -> Score | None:
        """The point's score on the first examples, of which it looks only at those that are new to it."""
        known = self._known.get(point)
        start = known.num_examples if known else 0
        if point in self._known and (known is None or start >= num_examples):
            return known
        try:
            new = self._score(point, self._order[start:num_examples])
        except InfeasibleTemperatures:
            self._known[point] = None
            return None
        self._known[point] = pooled([known, new]) if known else new
        return self._known[point]


def rounds(num_points: int, num_examples: int) -> list[int]:
    """How many examples have been seen after each round: enough rounds to leave one point, but at most four.

    >>> rounds(276, 100), rounds(11, 100), rounds(4, 100), rounds(1, 100), rounds(50, 2)
    ([4, 12, 34, 100], [12, 34, 100], [34, 100], [100], [1, 2])
    """
    num_cuts = 0
    while num_cuts < MAX_CUTS and KEEP**num_cuts < num_points:
        num_cuts += 1
    sizes = [math.ceil(num_examples / GROWTH**cut) for cut in range(num_cuts, -1, -1)]
    return list(dict.fromkeys(sizes))


def _survivors(scores: Mapping[Point, Score | None], pinned: Collection[Point]) -> list[Point]:
    order = Criterion.LOSS.order
    ranked = sorted(((order(score), point) for point, score in scores.items() if score), key=lambda pair: pair[0])
    kept = {point for _, point in ranked[: math.ceil(len(ranked) / KEEP)]}
    return [point for point, score in scores.items() if score and (point in kept or point in pinned)]
