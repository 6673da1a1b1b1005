"""Labels, and the loss of each example: class numbers, probabilities, or anything that a loss of one's own compares."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import as_tensor
from quietnn.errors import InvalidConfig

Losses = Callable[[Tensor, Tensor], Tensor]
"""`loss(outputs, labels)`: one loss for each example, shape (examples,)."""

Loss = Callable[[nn.Module, Tensor, "torch.Generator | None"], Tensor]
"""`loss(network, positions, generator)`: the mean loss of the examples at these positions, as a scalar tensor.

A generator is given while weights are fitted (augment then, with no other source of randomness) and is None where the
network is judged. Call the network once with all positions if you can: BatchNorms that follow the weights then see all.
"""

_ROUNDING = 0.01
"""By how much probabilities in 16 bits may fail to add up to 1."""


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of a classifier on each example.

    >>> cross_entropy(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """
    return functional.cross_entropy(outputs, labels, reduction="none")


def checked_labels(given: object, num_examples: int, loss: Losses) -> Tensor:
    """Labels in any form as a tensor that a loss can compare with the outputs of so many examples.

    >>> checked_labels([0, 2], 2, cross_entropy)
    tensor([0, 2])
    """
    is_list = isinstance(given, list | tuple) and all(isinstance(label, int) for label in given)
    if not is_list and not hasattr(given, "__array__"):
        raise InvalidConfig(
            f"labels is a {type(given).__name__}, and a tensor is needed; torch.as_tensor(...) makes one of class "
            "numbers, for example labels=torch.tensor([0, 2, 1])"
        )
    labels = as_tensor(given)
    if not labels.dim() or len(labels) != num_examples:
        raise InvalidConfig(
            f"{num_examples} inputs do not go with labels of shape {tuple(labels.shape)}; give one for each"
        )
    return _class_labels(labels) if loss is cross_entropy else labels


def _class_labels(labels: Tensor) -> Tensor:
    """Labels as cross-entropy takes them: class numbers in int64, or the probabilities of all classes."""
    shape = tuple(labels.shape)
    if len(shape) == 2 and shape[1] == 1:
        raise InvalidConfig(f"labels have shape {shape}; class numbers have shape ({len(labels)},): use labels[:, 0]")
    if labels.is_floating_point():
        if len(shape) == 1:
            raise InvalidConfig(f"labels are {labels.dtype}; class numbers are integers: use labels.long()")
        totals = labels.double().sum(1)
        if labels.numel() and not bool((labels >= 0).all() and (totals - 1).abs().max() < _ROUNDING):
            raise InvalidConfig(
                f"labels are {labels.dtype} of shape {shape} and not probabilities, which add up to 1; inputs come "
                "before labels: repair(model, inputs, labels); for other targets give loss=..."
            )
        return labels
    if labels.is_complex() or labels.dtype == torch.bool:
        raise InvalidConfig(f"labels are {labels.dtype}; class numbers are integers: use labels.long()")
    if labels.numel() and int(labels.min()) < 0:
        raise InvalidConfig(
            f"the smallest label is {int(labels.min())}; class numbers start at 0, leave out examples without a label"
        )
    return labels.long()


def check_outputs(outputs: Tensor, labels: Tensor) -> None:
    """Refuse outputs, (examples, classes, ...), without one number for each class, and labels that are no class."""
    expected = outputs.shape if labels.is_floating_point() else (*outputs.shape[:1], *outputs.shape[2:])
    if outputs.dim() < 2 or labels.shape != expected:
        raise InvalidConfig(
            f"the network's outputs have shape {tuple(outputs.shape)} for {len(labels)} labels; cross-entropy needs "
            "(examples, classes), for anything else give a loss of your own"
        )
    largest = int(labels.max()) if labels.numel() and not labels.is_floating_point() else 0
    if largest >= outputs.shape[1]:
        raise InvalidConfig(
            f"the largest label is {largest}, and the network has outputs for the classes 0 to "
            f"{outputs.shape[1] - 1}; give labels of the classes that it was trained for"
        )


def losses_of(loss: Losses, outputs: Tensor, labels: Tensor | None) -> Tensor:
    """The loss of each example, by cross-entropy or by a loss of the user's own."""
    if labels is None:
        raise InvalidConfig("there are no labels to judge by; give them: repair(model, inputs, labels)")
    if loss is cross_entropy:
        check_outputs(outputs, labels)
        losses = cross_entropy(outputs, labels)
        return losses if losses.dim() == 1 else losses.flatten(1).mean(1)  # a label at each of several positions
    try:
        losses = loss(outputs, labels)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InvalidConfig(
            f"the loss failed on outputs of shape {tuple(outputs.shape)} and labels of shape {tuple(labels.shape)} "
            f"and {labels.dtype}: {str(error).strip()[:200]}. It is called as loss(outputs, labels)"
        ) from error
    if not isinstance(losses, Tensor) or losses.shape != (len(labels),):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidConfig(
            f"the loss returned {shape} for {len(labels)} examples; it must return one loss for each, for example "
            "loss=lambda outputs, labels: mse_loss(outputs, labels, reduction='none').flatten(1).mean(1)"
        )
    return losses


def mean_loss_of(loss: Losses, outputs: Tensor, labels: Tensor) -> Tensor:
    """The mean loss, of which gradients are taken; that of cross-entropy in one operation."""
    if loss is not cross_entropy:
        return losses_of(loss, outputs, labels).mean()
    check_outputs(outputs, labels)
    return functional.cross_entropy(outputs, labels)


def right_of(outputs: Tensor, labels: Tensor | None) -> Tensor | None:
    """Which outputs are largest at the label's place; None where labels are not class numbers."""
    if labels is None or outputs.dim() != 2 or labels.dim() != 1 or labels.is_floating_point():
        return None
    return (outputs.argmax(1) == labels).double()


def finite(losses: list[Tensor]) -> Tensor:
    """All losses as one tensor; infinite where not a number."""
    return torch.cat(losses).double().nan_to_num(nan=torch.inf, posinf=torch.inf)


@dataclass(frozen=True)
class Verdict:
    """What a network did on each of some examples.

    Losses are float64, infinite where not a number. `right` is 1.0 where the largest output is that of the label, else
    0.0; it is None where labels are not class numbers.
    """

    losses: Tensor
    right: Tensor | None

    def at(self, positions: Tensor) -> "Verdict":
        """The same on some of the examples."""
        return Verdict(self.losses[positions], None if self.right is None else self.right[positions])


def verdict_of(loss: Losses, pairs: Iterable[tuple[Tensor, Tensor | None]]) -> Verdict:
    """What outputs and labels say together, batch after batch."""
    losses: list[Tensor] = []
    rights: list[Tensor | None] = []
    for outputs, labels in pairs:
        losses.append(losses_of(loss, outputs, labels))
        rights.append(right_of(outputs, labels))
    known = [one for one in rights if one is not None]
    return Verdict(finite(losses), torch.cat(known) if len(known) == len(rights) else None)


def joined(verdicts: Sequence[Verdict]) -> Verdict:
    """Several verdicts as one, in their order."""
    rights = [one.right for one in verdicts if one.right is not None]
    losses = torch.cat([one.losses for one in verdicts])
    return Verdict(losses, torch.cat(rights) if len(rights) == len(verdicts) else None)
