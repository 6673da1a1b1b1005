"""What a trial is judged by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """How well a network does on some examples.

    Attributes:
        accuracy: fraction of examples that are right, between 0 and 1.
        loss: mean loss per example; it breaks the many ties of accuracy on a hundred examples.
        num_examples: how many examples were seen.
    """

    accuracy: float
    loss: float
    num_examples: int

    @property
    def standard_error(self) -> float:
        """The binomial standard error of the accuracy.

        >>> Score(accuracy=0.5, loss=0.7, num_examples=100).standard_error
        0.05
        """
        return math.sqrt(self.accuracy * (1.0 - self.accuracy) / self.num_examples)


def pooled(scores: Sequence[Score]) -> Score:
    """The score on all examples, from those on disjoint parts of them.

    >>> pooled([Score(accuracy=1.0, loss=0.5, num_examples=10), Score(accuracy=0.5, loss=2.0, num_examples=20)])
    Score(accuracy=0.6666666666666666, loss=1.5, num_examples=30)
    """
    num_examples = sum(score.num_examples for score in scores)
    return Score(
        accuracy=math.fsum(score.accuracy * score.num_examples for score in scores) / num_examples,
        loss=math.fsum(score.loss * score.num_examples for score in scores) / num_examples,
        num_examples=num_examples,
    )
