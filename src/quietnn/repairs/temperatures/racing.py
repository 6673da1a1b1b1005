"""Racing: most points are told from the best by a few examples; only the best few see them all.

Successive halving (Karnin et al. 2013, Jamieson and Talwalkar 2016) with examples as the budget. All points of a race
see the same examples in the same order, so their losses are compared in pairs, and no example is used twice.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.repairs.temperatures.result import Criterion, Trial, Tried, TuningResult
from quietnn.score import Score, pooled

Point = TypeVar("Point")

GROWTH = 3
"""How many times as many examples each round sees."""

KEEP = 4
"""One point in so many goes on to the next round."""

MAX_CUTS = 3
"""With more, the first round would see less than one example in 27."""


class Race(Tried[Point]):
    """Three points of four are dropped after each round, the next of which sees three times as many examples.

    `score(point, positions)` judges a point by the examples at some positions. Rounds are cut by loss, which tells
    points apart on ten examples where accuracy ties. 276 points cost 23 passes. Trials hold the score on as many
    examples as they saw; `criterion` ranks those that saw all.

    >>> race = Race(lambda x, some: Score(0.0, (x - 3) ** 2, len(some)), num_examples=90)
    >>> result = race.on(range(16))
    >>> result.temperatures, sorted(trial.score.num_examples for trial in result.trials)[-4:], result.num_passes
    (3, [30, 30, 30, 90], 3.3333333333333335)
    """

    def __init__(
        self,
        score: Callable[[Point, Tensor], Score],
        num_examples: int,
        criterion: Criterion | str = Criterion.ACCURACY,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(score, criterion)
        if num_examples < 1:
            raise InvalidConfig(f"num_examples is {num_examples}; racing needs 1 or more")
        self._order = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed))

    def _try(self, points: Sequence[Point], pinned: Collection[Point]) -> None:
        left = list(points)
        for num_examples in rounds(len(left), len(self._order)):
            scores = {point: self._look(point, num_examples) for point in left}
            if num_examples < len(self._order):
                left = _survivors(scores, pinned)

    def _result(self, trials: Sequence[Trial[Point]]) -> TuningResult[Point]:
        finalists = [trial for trial in trials if trial.score and trial.score.num_examples == len(self._order)]
        return TuningResult(super()._result(finalists or trials).best, tuple(trials))

    def _look(self, point: Point, num_examples: int) -> Score | None:
        """The point's score on the first examples, of which it looks only at those that are new to it."""
        known = self._known.get(point)
        start = known.num_examples if known else 0
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
