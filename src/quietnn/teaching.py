"""A clean network whose outputs are labels: who wrote a chip has it, and inputs without labels cost nothing."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, in_evaluation
from quietnn.errors import InvalidConfig, check_is


def divergence(outputs: Tensor, told: Tensor) -> Tensor:
    """The Kullback-Leibler divergence of each example's probabilities from a teacher's; both come as logits.

    It is cross-entropy less what the teacher itself would lose, so it is zero where outputs are the teacher's. Classes
    run along dimension 1, as in `cross_entropy`.

    >>> divergence(torch.zeros(1, 2), torch.tensor([[7.0, 7.0]]))
    tensor([0.])
    """
    if outputs.dim() < 2 or outputs.shape != told.shape:
        raise InvalidConfig(
            f"the network's outputs have shape {tuple(outputs.shape)} and the teacher's {tuple(told.shape)}; they must "
            "be of the same classes, for anything else give a loss of your own: loss=f, called as f(outputs, told)"
        )
    expected, found = told.log_softmax(1), outputs.log_softmax(1)
    losses = (expected.exp() * (expected - found)).sum(1)
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def check_teacher(teacher: object, inputs: object, labels: object) -> None:
    """Refuse what is no network, one without inputs to tell of, and one beside other labels."""
    check_is(teacher, nn.Module, "teacher", "give the clean network: repair(model, inputs, teacher=clean)")
    if inputs is None:
        raise InvalidConfig("a teacher needs inputs to tell of, without labels: repair(model, inputs, teacher=clean)")
    brought = isinstance(inputs, Mapping) and "labels" in inputs
    if brought or (labels is not None and not (isinstance(labels, Tensor) and labels.is_floating_point())):
        raise InvalidConfig("labels came beside a teacher, whose outputs are the labels; leave one of them out")


def told_by(teacher: nn.Module, inputs: Inputs, run: Callable[[nn.Module, Inputs], Tensor]) -> Tensor:
    """A teacher's outputs, without gradients and in evaluation mode."""
    with in_evaluation(teacher):
        told = run(teacher, inputs)
    if not bool(torch.isfinite(told).all()):
        raise InvalidConfig("the teacher's outputs are not finite; give the clean network, with weights that are")
    return told
