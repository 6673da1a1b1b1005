"""Labelled examples as a judge of networks, example by example."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import Inputs, check_finite, check_inputs, check_labels, check_outputs, outputs_of, take
from quietnn.errors import InvalidConfig
from quietnn.repairs.fitting.scratch import Augment, Loss
from quietnn.repairs.temperatures.score import Score
from quietnn.repairs.temperatures.tune import SubsetScore

Losses = Callable[[Tensor, Tensor], Tensor]
"""`losses(outputs, labels)`: one loss for each example, shape (examples,)."""

Run = Callable[[nn.Module, Inputs], Tensor]
"""Calls a network on inputs and returns its outputs, in the order of the inputs."""


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of a classifier on each example.

    >>> cross_entropy(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """
    return functional.cross_entropy(outputs, labels, reduction="none")


@dataclass(frozen=True)
class Verdict:
    """What a network did on each of some examples.

    Attributes:
        losses: float64, infinite where not a number.
        right: 1.0 where the largest output is that of the label, else 0.0; NaN where labels are not class numbers.
    """

    losses: Tensor
    right: Tensor


@dataclass(frozen=True)
class Labelled:
    """Inputs with their labels, and how a network is run and judged on them.

    Attributes:
        inputs: a tensor, or tensors passed by keyword.
        labels: class numbers, or whatever `losses` compares outputs with.
        losses: the loss of each example.
        augment: random variants of a tensor of inputs that keep their labels, for methods that fit to them.
        run: calls the network.
    """

    inputs: Inputs
    labels: Tensor
    losses: Losses = field(default=cross_entropy)
    augment: Augment | None = None
    run: Run = field(default=outputs_of)

    def __post_init__(self) -> None:
        """Refuse inputs that no network can be judged on, and labels that do not belong to them."""
        num_inputs = check_inputs(self.inputs)
        check_finite(self.inputs)
        if self.losses is cross_entropy:
            object.__setattr__(self, "labels", check_labels(self.labels, num_inputs))
        elif not isinstance(self.labels, Tensor) or not self.labels.dim() or len(self.labels) != num_inputs:
            raise InvalidConfig(f"labels must be a tensor with one for each of the {num_inputs} inputs")

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.labels)

    def take(self, positions: Tensor) -> "Labelled":
        """The examples at these positions."""
        return replace(self, inputs=take(self.inputs, positions), labels=self.labels[positions])

    def judge(self, network: nn.Module) -> Verdict:
        """Run a network on all examples in evaluation mode; its modes are restored."""
        modes = {layer: layer.training for layer in network.modules()}
        try:
            with torch.no_grad():
                outputs = self.run(network.eval(), self.inputs)
                losses = self._each(outputs, self.labels).double()
        finally:
            for layer, mode in modes.items():
                layer.training = mode
        is_classifier = outputs.dim() == 2 and self.labels.dim() == 1 and not self.labels.is_floating_point()
        right = (outputs.argmax(1) == self.labels).double() if is_classifier else torch.full_like(losses, torch.nan)
        return Verdict(losses.nan_to_num(nan=torch.inf, posinf=torch.inf), right)

    def loss(self, network: nn.Module, positions: Tensor, generator: "torch.Generator | None") -> Tensor:
        """The mean loss at some positions, in the form that gradients are taken of (`fitting/scratch.py`)."""
        inputs = take(self.inputs, positions)
        if self.augment is not None and generator is not None and isinstance(inputs, Tensor):
            inputs = self.augment(inputs, generator)
        return self._each(self.run(network, inputs), self.labels[positions]).mean()

    @property
    def as_loss(self) -> Loss:
        """The loss as a function of its own."""
        return self.loss

    @property
    def as_score(self) -> SubsetScore:
        """A score for searches, of all examples or of some."""

        def score(network: nn.Module, positions: Tensor) -> Score:
            verdict = self.take(positions).judge(network)
            return Score(float(verdict.right.mean()), float(verdict.losses.mean()), len(positions))

        return SubsetScore(score, len(self))

    def _each(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.losses is cross_entropy:
            check_outputs(outputs, labels)
        losses = self.losses(outputs, labels)
        if losses.shape != (len(labels),):
            raise InvalidConfig(
                f"the loss has shape {tuple(losses.shape)} for {len(labels)} examples; return one loss for each, for "
                "example with reduction='none'"
            )
        return losses
