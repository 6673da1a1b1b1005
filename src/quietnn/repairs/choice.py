"""Which candidate the evidence is for, what accuracy to expect of a network chosen so, and the report of it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.losses import Verdict

BASELINE = "ml"
"""What nothing chosen may be worse than: the received weights."""

STANDARD_ERRORS = 2.0
"""By how many standard errors a candidate has to be better than fits that are judged: these have seen half of the
examples and taken half of the steps, the one that is used sees all of them. On development seeds of ten small networks
`auto` was then within one point of the best in 99 % of 129 draws with 100 labels, and in 90 % of 113 with 12 labels. By
the smallest loss it was in 96 and 55 %."""

_Z = 1.959964
"""97.5 per cent of a standard Gaussian lies below."""


@dataclass(frozen=True)
class Tried:
    """One repair and what became of it."""

    name: str
    loss: float | None = None  # the mean on held-out examples, where it was judged
    accuracy: float | None = None  # on the same examples, where labels are class numbers
    passes: float = 0.0  # over all examples, a backward pass counting two
    failed: str | None = None  # why it could not be made, or was not tried

    def __str__(self) -> str:
        """A line of a table."""
        if self.loss is None:
            return f"{self.name:18s} {self.failed or 'not judged: no labels'}"
        accuracy = "" if self.accuracy is None else f"  accuracy {self.accuracy:6.1%}"
        return f"{self.name:18s} held-out loss {self.loss:7.3f}{accuracy}  {self.passes:5.0f} passes"


@dataclass(frozen=True)
class AutoReport:
    """Why `auto` chose what it chose.

    The expected accuracy is that of networks chosen in this way, on new examples. They were made from half of the
    examples, so one made from all does as well or better, as a rule.
    """

    chosen: str
    tried: tuple[Tried, ...]  # every repair that was tried, from the simplest to the most elaborate
    expected_accuracy: float | None = None  # None without class labels
    accuracy_at_least: float | None = None  # the 97.5 % lower limit of that, and so of the network's own
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A table of the repairs, the choice and the notes."""
        lines = [f"{'*' if one.name == self.chosen else ' '} {one}" for one in self.tried]
        if self.expected_accuracy is not None and self.accuracy_at_least is not None:
            lines.append(
                f"expected accuracy {self.accuracy_at_least:.1%} or more (97.5 % sure; from half of the examples it "
                f"was {self.expected_accuracy:.1%})"
            )
        return "\n".join([*lines, *self.notes])


def choose(verdicts: Mapping[str, Verdict], positions: Tensor | None = None, *, fitted: Collection[str] = ()) -> str:
    """The candidate of the smallest loss, or ML where it is within one standard error of that.

    Losses are compared in pairs, example by example, so what all candidates find hard does not count as error. Among
    repairs a draw goes to the smallest loss and not to the simplest: those that fit to labels are judged by what half
    of the examples taught them, and the one that is returned has all.

    A candidate that was `fitted` to all of them by more steps than the fits that are judged is further ahead still. It
    is taken unless another is better by more than `STANDARD_ERRORS`.

    A candidate that has fewer examples right than ML, by more than one standard error, is out. Shrinking makes a noisy
    network less sure of its mistakes, and its loss smaller, also where more of its answers are wrong.

    >>> ml = Verdict(torch.tensor([2.0, 2.1, 2.2, 2.3]), torch.zeros(4))
    >>> better = Verdict(torch.tensor([1.0, 1.2, 1.1, 1.3]), torch.ones(4))
    >>> hardly = Verdict(torch.tensor([1.1, 1.1, 1.0, 1.3]), torch.ones(4))
    >>> choose({"ml": ml, "calibrated": better, "posterior": hardly}), choose({"ml": better, "posterior": hardly})
    ('posterior', 'ml')
    """
    if positions is not None:
        verdicts = {name: verdict.at(positions) for name, verdict in verdicts.items()}
    baseline = verdicts[BASELINE]
    left = {name: verdict.losses for name, verdict in verdicts.items() if not _has_fewer_right(verdict, baseline)}
    means = {name: float(losses.mean()) for name, losses in left.items()}
    best = min(means, key=lambda name: means[name])
    if not math.isfinite(means[best]):
        return BASELINE
    for name in sorted(means.keys() & set(fitted), key=lambda name: means[name]):
        if means[name] <= means[best] + STANDARD_ERRORS * by_chance(left[name] - left[best]):
            return name
    return BASELINE if means[BASELINE] <= means[best] + by_chance(baseline.losses - left[best]) else best


def by_chance(differences: Tensor) -> float:
    """The standard error of a mean difference; zero where it cannot be told."""
    error = float(differences.std()) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return error if math.isfinite(error) else 0.0


def _has_fewer_right(verdict: Verdict, baseline: Verdict) -> bool:
    """Whether more answers were lost than won, by more than the root of their number (McNemar 1947)."""
    if verdict.right is None or baseline.right is None:
        return False
    won = verdict.right - baseline.right
    return -float(won.sum()) > math.sqrt(float(won.abs().sum()))


def accuracy_of_choice(
    verdicts: Mapping[str, Verdict], halves: Sequence[Tensor], *, fitted: Collection[str] = ()
) -> float | None:
    """The accuracy of networks chosen in this way: on each part by what the others say, never by the part itself.

    The best of several looks better than it is on the examples that made it the best; this does not. It is that of
    networks made from part of the examples, and so a careful guess at that of one made from all. None where labels are
    not class numbers.
    """
    num_right = 0.0
    for index, half in enumerate(halves):
        others = torch.cat([other for place, other in enumerate(halves) if place != index])
        right = verdicts[choose(verdicts, others, fitted=fitted)].right
        if right is None:
            return None
        num_right += float(right[half].sum())
    return num_right / sum(len(half) for half in halves)


def at_least(accuracy: float, num_examples: int) -> float:
    """The 97.5 % lower limit of a proportion: the lower end of Wilson's 95 % interval (1927).

    There is no upper limit beside it: the examples judge networks made from half of them, and how much more one made
    from all of them can do is not told by these.

    >>> round(at_least(1.0, 100), 3), at_least(0.0, 100)
    (0.963, 0.0)
    """
    shrink = 1 / (1 + _Z**2 / num_examples)
    centre = shrink * (accuracy + _Z**2 / (2 * num_examples))
    width = shrink * _Z * math.sqrt(accuracy * (1 - accuracy) / num_examples + (_Z / (2 * num_examples)) ** 2)
    return max(centre - width, 0.0)
