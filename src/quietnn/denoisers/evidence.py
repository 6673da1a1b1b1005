"""Labelled examples as evidence: a loss of the network, and where its gradient in the noisy weights is taken."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.denoisers.blended_norm import blend_statistics, scale_free, write_statistics
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES, Weights

Loss = Callable[[nn.Module, Tensor, "torch.Generator | None"], Tensor]
"""`loss(network, positions, generator)`: the mean loss of the examples at these positions, as a scalar tensor.

A generator is given while weights are fitted (augment and smooth then, with no other source of randomness) and is
None where the network is judged.
"""

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Random variants of a batch of inputs that keep their labels, for example crops and flips."""

Calibrate = Callable[[nn.Module], nn.Module]
"""Fits the BatchNorm statistics of a network to its weights; returns another network. One forward pass."""


def classification_loss(
    inputs: Tensor | Mapping[str, Tensor],
    labels: Tensor,
    *,
    augment: Augment | None = None,
    label_smoothing: float = 0.0,
) -> Loss:
    """The cross-entropy of a classifier on examples held in memory.

    Args:
        inputs: a tensor, or tensors passed by keyword (transformers), whose first dimension is the example.
        labels: class numbers.
        augment: variants of the inputs to fit to; the network is judged on the inputs as they are.
        label_smoothing: for fitting only.

    >>> loss = classification_loss(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> round(float(loss(nn.Identity(), torch.arange(4), None)), 4)    # two classes, equal logits: log 2
    0.6931
    """

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        if isinstance(inputs, Mapping):
            output = network(**{name: tensor[positions] for name, tensor in inputs.items()})
        else:
            chosen = inputs[positions]
            output = network(augment(chosen, generator) if augment and generator else chosen)
        logits = output if isinstance(output, Tensor) else output.logits
        return functional.cross_entropy(
            logits, labels[positions], label_smoothing=label_smoothing if generator is not None else 0.0
        )

    return loss


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


class Scratch:
    """A private copy of a network whose noisy weights can be set, judged and differentiated.

    Dropout is off. BatchNorm uses its stored statistics or, with `blended`, those of `quietnn.denoisers.blended_norm`:
    then scales and shifts that noise gave to its inputs matter little.

    Attributes:
        num_passes: the cost so far, in forward passes over `num_examples` examples; a backward pass counts two.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        num_examples: int,
        *,
        blended: bool = False,
        normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    ) -> None:
        self._network = copy.deepcopy(model).eval()
        names = noisy_weights(self._network, normalisation=normalisation)
        parameters = dict(self._network.named_parameters(remove_duplicate=False))
        self._network.requires_grad_(False)
        self._noisy = {name: parameters[name].requires_grad_() for name in names}
        self._blended = blend_statistics(self._network) if blended else {}
        self._loss = loss
        self._num_examples = num_examples
        self.num_passes = 0.0

    @property
    def follows(self) -> bool:
        """Whether there are BatchNorm statistics that follow the weights."""
        return bool(self._blended)

    def scale_free(self) -> frozenset[str]:
        """Names of the weights whose scale the statistics of the next layer undo."""
        two = torch.arange(min(2, self._num_examples))
        return scale_free(self._network, lambda: self._loss(self._network, two, None)) if self._blended else frozenset()

    def gradient(
        self, weights: Weights, positions: Tensor, generator: torch.Generator
    ) -> tuple[float, dict[str, Tensor]]:
        """The mean loss at these weights, and its gradient in each of them."""
        self._write(weights)
        loss = _scalar(self._loss(self._network, positions, generator))
        if not loss.requires_grad:
            raise QuietnnError(
                "the loss has no gradient; return the mean loss as a tensor, computed by calling the network that is "
                "passed in, outside torch.no_grad"
            )
        gradients = torch.autograd.grad(loss, list(self._noisy.values()), allow_unused=True)
        self.num_passes += 3 * len(positions) / self._num_examples
        return float(loss.detach()), {
            name: torch.zeros_like(weights[name]) if gradient is None else gradient
            for name, gradient in zip(self._noisy, gradients, strict=True)
        }

    def judge(self, weights: Weights, positions: Tensor) -> float:
        """The mean loss at these weights; infinite where it is not a number."""
        self._write(weights)
        return self.judge_network(self._network, positions)

    def judge_network(self, network: nn.Module, positions: Tensor) -> float:
        """The mean loss of another network in evaluation mode, its mode being restored."""
        modes = {layer: layer.training for layer in network.modules()}
        self.num_passes += len(positions) / self._num_examples
        try:
            with torch.no_grad():
                value = float(_scalar(self._loss(network.eval(), positions, None)))
        finally:
            for layer, mode in modes.items():
                layer.training = mode
        return math.inf if math.isnan(value) else value

    def finish(self, model: nn.Module, weights: Weights) -> nn.Module:
        """A copy of the model with these weights and, where statistics are blended, those of all examples."""
        finished = with_weights(model, weights)
        if self._blended:
            self.judge(weights, torch.arange(self._num_examples))
            write_statistics(finished, self._blended)
        return finished

    @torch.no_grad()
    def _write(self, weights: Weights) -> None:
        for name, parameter in self._noisy.items():
            parameter.copy_(weights[name])


def _scalar(loss: Tensor) -> Tensor:
    if loss.numel() != 1:
        raise QuietnnError(
            f"the loss has shape {tuple(loss.shape)}; return the mean loss of the positions, for example loss.mean()"
        )
    return loss.reshape(())
