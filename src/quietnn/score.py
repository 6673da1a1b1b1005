"""What a network is judged by: accuracy and loss, or any number with a direction, on examples held out for it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig


@dataclass(frozen=True)
class Score:
    """How well a network does on some examples.

    Attributes:
        accuracy: fraction of examples that are right, between 0 and 1. None if the task has no accuracy.
        loss: mean loss per example, smaller is better; it breaks the many ties of accuracy on a hundred examples.
        num_examples: how many examples were seen.
        value: the user's own score (perplexity, F1, ...), as it was returned. `loss` then holds it too, with its sign
            changed if more is better.
        right: whether each example is right, if that was kept. Intervals over test examples need it.

    >>> Score(accuracy=0.5, loss=0.7, num_examples=100)
    Score(accuracy=0.5, loss=0.7, num_examples=100)
    """

    accuracy: float | None
    loss: float
    num_examples: int
    value: float | None = None
    right: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def standard_error(self) -> float:
        """The binomial standard error of the accuracy; NaN if there is no accuracy.

        >>> Score(accuracy=0.5, loss=0.7, num_examples=100).standard_error
        0.05
        """
        if self.accuracy is None:
            return math.nan
        return math.sqrt(self.accuracy * (1.0 - self.accuracy) / self.num_examples)

    @property
    def number(self) -> float:
        """The score as one number: the user's own, else the accuracy, else the loss.

        >>> Score(None, 0.7, 100).number
        0.7
        """
        return next(one for one in (self.value, self.accuracy, self.loss) if one is not None)

    def __repr__(self) -> str:
        """The fields that say something."""
        own = "" if self.value is None else f", value={self.value!r}"
        return f"Score(accuracy={self.accuracy!r}, loss={self.loss!r}, num_examples={self.num_examples!r}{own})"

    def __str__(self) -> str:
        """What a reader of a table wants.

        >>> print(Score(0.5, 0.7, 100), as_score(3.2, higher_is_better=False))
        50.0 % 3.2
        """
        if self.value is not None:
            return f"{self.value:.4g}"
        return f"loss {self.loss:.4g}" if self.accuracy is None else f"{100 * self.accuracy:.1f} %"


def as_score(returned: object, *, higher_is_better: bool = True) -> Score:
    """What a score function returned, as a score.

    >>> as_score(0.25, higher_is_better=True).loss
    -0.25
    """
    if isinstance(returned, Score):
        return returned
    if isinstance(returned, Tensor) and returned.numel() == 1:
        returned = returned.item()
    if isinstance(returned, bool) or not isinstance(returned, int | float):
        if not hasattr(returned, "__float__") or isinstance(returned, Tensor):
            raise InvalidConfig(
                f"the score returned a {type(returned).__name__}; return one number, "
                "score=lambda network: float(...), or a quietnn.Score"
            )
        returned = float(returned)
    value = float(returned)
    loss = math.inf if math.isnan(value) else (-value if higher_is_better else value)
    return Score(None, loss, 1, value)


@dataclass(frozen=True)
class SubsetScore:
    """A score that can also look at some of the examples only, as racing needs it: `of` those at some positions.

    >>> score = SubsetScore(lambda network, positions: Score(1.0, 0.0, len(positions)), num_examples=100)
    >>> score(nn.Identity()).num_examples
    100
    """

    of: Callable[[nn.Module, Tensor], Score]
    num_examples: int

    def __call__(self, network: nn.Module) -> Score:
        """The score on all examples."""
        return self.of(network, torch.arange(self.num_examples))

    def at(self, positions: Tensor) -> "SubsetScore":
        """The same score on the examples at these positions alone."""
        return SubsetScore(lambda network, chosen: self.of(network, positions[chosen]), len(positions))


ScoreFunction = Callable[[nn.Module], Score | float] | SubsetScore
"""Judges a network: a function to a number, or to a `Score`."""


def pooled(scores: Sequence[Score]) -> Score:
    """The score on all examples, from those on disjoint parts of them.

    >>> pooled([Score(accuracy=1.0, loss=0.5, num_examples=10), Score(accuracy=0.5, loss=2.0, num_examples=20)])
    Score(accuracy=0.6666666666666666, loss=1.5, num_examples=30)
    """
    num_examples = sum(score.num_examples for score in scores)
    rights = [score.accuracy * score.num_examples for score in scores if score.accuracy is not None]
    return Score(
        accuracy=math.fsum(rights) / num_examples if len(rights) == len(scores) else None,
        loss=math.fsum(score.loss * score.num_examples for score in scores) / num_examples,
        num_examples=num_examples,
    )


@dataclass(frozen=True)
class Split:
    """Positions to fit on and positions held out as a guard against overfitting."""

    fit: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, num_examples: int, held_out: float, *, seed: int) -> "Split":
        """A random split; each side gets at least one example.

        >>> split = Split.of(10, 0.2, seed=0)
        >>> len(split.fit), len(split.held_out)
        (8, 2)
        """
        if num_examples < 2:
            raise InvalidConfig(f"num_examples is {num_examples}; fitting with a held-out part needs 2 or more")
        if not 0 < held_out < 1:
            raise InvalidConfig(f"held_out is {held_out}; it must be a fraction between 0 and 1, for example 0.2")
        num_held_out = min(max(round(held_out * num_examples), 1), num_examples - 1)
        order = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed))
        return cls(order[num_held_out:], order[:num_held_out])


def folds(num_examples: int, num_folds: int, *, seed: int) -> list[Split]:
    """Splits in which every example is held out once, from the fit on all others.

    >>> [len(split.held_out) for split in folds(5, 2, seed=0)]
    [3, 2]
    """
    if not 2 <= num_folds <= num_examples:
        raise InvalidConfig(f"num_folds is {num_folds}; it must be from 2 to the number of examples, {num_examples}")
    parts = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed)).tensor_split(num_folds)
    return [Split(torch.cat([*parts[:index], *parts[index + 1 :]]), part) for index, part in enumerate(parts)]
