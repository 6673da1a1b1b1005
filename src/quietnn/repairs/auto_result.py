"""What `auto` returns."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Tried:
    """One candidate and what became of it.

    Attributes:
        name: of the candidate.
        loss: mean loss on held-out examples; None where it was not judged.
        accuracy: on the same examples; None where it was not judged, NaN where labels are not class numbers.
        num_passes: cost in forward passes over all examples, a backward pass counting two.
        failed: why it could not be made, or was not tried.
    """

    name: str
    loss: float | None = None
    accuracy: float | None = None
    num_passes: float = 0.0
    failed: str | None = None


@dataclass(frozen=True)
class AutoResult:
    """The repaired network, and why it is the one.

    Attributes:
        model: a copy; the network given stays as it was.
        chosen: name of the candidate that made it.
        tried: every candidate, from the simplest to the most elaborate.
        expected_accuracy: of networks chosen in this way, on new examples; None without labels. They were made from
            half of the examples, so one made from all does as well or better, as a rule.
        accuracy_at_least: the 97.5 % lower limit of that accuracy, and so of the network's own.
        num_passes: what it all cost, in forward passes over all examples; a backward pass counts two.
        notes: what there is to say about it.
    """

    model: nn.Module
    chosen: str
    tried: tuple[Tried, ...]
    expected_accuracy: float | None
    accuracy_at_least: float | None
    num_passes: float
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """A table of the candidates, the choice and the notes."""
        lines = [_line(one, one.name == self.chosen) for one in self.tried]
        if self.expected_accuracy is not None and self.accuracy_at_least is not None:
            lines.append(
                f"expected accuracy {self.accuracy_at_least:.1%} or more (97.5 % sure; from half of the examples it "
                f"was {self.expected_accuracy:.1%}), {self.num_passes:.0f} passes"
            )
        return "\n".join([*lines, *self.notes])


def _line(one: Tried, is_chosen: bool) -> str:
    mark = "*" if is_chosen else " "
    if one.loss is None:
        return f"{mark} {one.name:18s} {one.failed or 'not judged, for want of labels'}"
    judged = f"held-out loss {one.loss:7.3f}  accuracy {one.accuracy:6.1%}"
    return f"{mark} {one.name:18s} {judged}  {one.num_passes:5.0f} passes"
