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
        expected_accuracy: of a network chosen in this way, on new examples; None without labels.
        interval: 95 % interval of that accuracy.
        num_passes: what it all cost, in forward passes over all examples; a backward pass counts two.
        notes: what there is to say about it.
    """

    model: nn.Module
    chosen: str
    tried: tuple[Tried, ...]
    expected_accuracy: float | None
    interval: tuple[float, float] | None
    num_passes: float
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """A table of the candidates, the choice and the notes."""
        lines = [_line(one, one.name == self.chosen) for one in self.tried]
        if self.expected_accuracy is not None and self.interval is not None:
            low, high = self.interval
            lines.append(
                f"expected accuracy {self.expected_accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}), "
                f"{self.num_passes:.0f} passes"
            )
        return "\n".join([*lines, *self.notes])


def _line(one: Tried, is_chosen: bool) -> str:
    mark = "*" if is_chosen else " "
    if one.loss is None:
        return f"{mark} {one.name:18s} {one.failed or 'not judged, for want of labels'}"
    judged = f"held-out loss {one.loss:7.3f}  accuracy {one.accuracy:6.1%}"
    return f"{mark} {one.name:18s} {judged}  {one.num_passes:5.0f} passes"
