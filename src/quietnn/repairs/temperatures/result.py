"""What a search returns: every point it tried and the best of them."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from quietnn.errors import InfeasibleTemperatures, QuietnnError, unknown_choice
from quietnn.score import Score

Point = TypeVar("Point", covariant=True)
Candidate = TypeVar("Candidate")


class Criterion(StrEnum):
    """What makes a score better.

    `ACCURACY` breaks its many ties by loss. `ACCURACY_ONLY` leaves them to the order of the trials, as the paper's
    authors did. `LOSS` looks at accuracy only between equal losses.
    """

    ACCURACY = "accuracy"
    ACCURACY_ONLY = "accuracy-only"
    LOSS = "loss"

    @classmethod
    def _missing_(cls, value: object) -> "Criterion":
        raise unknown_choice("criterion", value, cls)

    def order(self, score: Score) -> tuple[float, float]:
        """A key that is smaller for a better score; what is not a number is the worst.

        >>> Criterion.ACCURACY.order(Score(0.9, 0.3, 100)) < Criterion.ACCURACY.order(Score(0.9, 0.4, 100))
        True
        """
        values = (0.0 if score.accuracy is None else -score.accuracy, score.loss)
        error, loss = (math.inf if math.isnan(value) else value for value in values)
        if self is Criterion.LOSS:
            return loss, error
        return error, 0.0 if self is Criterion.ACCURACY_ONLY and score.accuracy is not None else loss


@dataclass(frozen=True)
class Trial(Generic[Point]):
    """One point of a search and its score; no score means the point is infeasible."""

    temperatures: Point
    score: Score | None


@dataclass(frozen=True)
class TuningResult(Generic[Point]):
    """The best trial, and all trials in the order they ran: the whole surface."""

    best: Trial[Point]
    trials: tuple[Trial[Point], ...]

    @property
    def temperatures(self) -> Point:
        """The temperatures that won."""
        return self.best.temperatures

    @property
    def num_passes(self) -> float:
        """Cost in forward passes over all examples: a trial that saw a tenth of them counts a tenth."""
        sizes = [trial.score.num_examples for trial in self.trials if trial.score is not None]
        return sum(sizes) / max(sizes, default=1)

    @classmethod
    def of(
        cls, trials: Iterable[Trial[Point]], criterion: Criterion | str = Criterion.ACCURACY
    ) -> "TuningResult[Point]":
        """Pick the best feasible trial; of equal ones, the first."""
        trials = tuple(trials)
        scored = [(trial, trial.score) for trial in trials if trial.score is not None]
        if not scored:
            raise QuietnnError(
                f"none of the {len(trials)} temperatures is feasible; add some with lambda' < 1 (0 is MMSE, 1 is ML)"
            )
        order = Criterion(criterion).order
        best, _ = min(scored, key=lambda pair: order(pair[1]))
        return cls(best, trials)


def try_each(score: Callable[[Candidate], Score], points: Iterable[Candidate]) -> Iterator[Trial[Candidate]]:
    """One trial per point, with no score where the point is infeasible."""
    for point in points:
        try:
            yield Trial(point, score(point))
        except InfeasibleTemperatures:
            yield Trial(point, None)


class Tried(Generic[Candidate]):
    """The points that a search has tried, each once.

    >>> tried = Tried(lambda x: Score(None, (x - 3) ** 2, num_examples=1))
    >>> tried.on([1, 2]).temperatures, tried.on([2, 4]).temperatures, len(tried.on([3]).trials)
    (2, 2, 4)
    """

    def __init__(self, score: Callable[..., Score], criterion: Criterion | str = Criterion.ACCURACY) -> None:
        self._score, self._criterion = score, criterion
        self._known: dict[Candidate, Score | None] = {}

    def on(self, points: Sequence[Candidate], *, pinned: Collection[Candidate] = ()) -> TuningResult[Candidate]:
        """The result so far, once those of the points that are new have been tried; a race never drops those pinned."""
        self._try([point for point in dict.fromkeys(points) if point not in self._known], pinned)
        return self._result([Trial(point, score) for point, score in self._known.items()])

    def _try(self, points: Sequence[Candidate], pinned: Collection[Candidate]) -> None:
        self._known.update((trial.temperatures, trial.score) for trial in try_each(self._score, points))

    def _result(self, trials: Sequence[Trial[Candidate]]) -> TuningResult[Candidate]:
        return TuningResult.of(trials, self._criterion)
