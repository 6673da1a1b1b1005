"""Labelled examples as evidence: a loss of the network, and where its gradient in the noisy weights is taken."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import call, check_inputs, check_labels, check_outputs, logits_of
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.repairs.branch_denoisers import behind_last_normalisation
from quietnn.repairs.fitting.moving_statistics import Blending, write_statistics
from quietnn.targets import noisy_weights, with_weights
from quietnn.watching.makers import eagerly
from quietnn.weights import NORMALISATION_TYPES, Weights

Loss = Callable[[nn.Module, Tensor, "torch.Generator | None"], Tensor]
"""`loss(network, positions, generator)`: the mean loss of the examples at these positions, as a scalar tensor.

A generator is given while weights are fitted (augment and smooth then, with no other source of randomness) and is
None where the network is judged.

Call the network once with all positions if you can: BatchNorms that follow the weights (`moving_statistics.py`)
then see all of them at once. Called in chunks, they normalise each chunk by what that chunk shows, and only the
statistics that are kept in the end are those of all positions together.
"""

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Random variants of a batch of inputs that keep their labels, for example crops and flips."""


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
        labels: class numbers, or the probabilities of all classes.
        augment: variants of the inputs to fit to; the network is judged on the inputs as they are.
        label_smoothing: for fitting only.

    Raises:
        QuietnnError: if inputs or labels are of another kind, or do not go together; from the loss, if the labels are
            not among the network's classes.

    >>> loss = classification_loss(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> round(float(loss(nn.Identity(), torch.arange(4), None)), 4)    # two classes, equal logits: log 2
    0.6931
    """
    checked = check_labels(labels, check_inputs(inputs))

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        if isinstance(inputs, Tensor):
            chosen = inputs[positions]
            output = call(network, augment(chosen, generator) if augment and generator else chosen)
        else:
            output = call(network, {name: tensor[positions] for name, tensor in inputs.items()})
        logits, targets = logits_of(output), checked[positions]
        check_outputs(logits, targets)
        return functional.cross_entropy(
            logits, targets, label_smoothing=label_smoothing if generator is not None else 0.0
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

    Dropout is off. BatchNorm uses its stored statistics or, with `blended`, follows the weights
    (`moving_statistics.py`): then scales and shifts that noise gave to its inputs matter little. Gradients are
    taken even where the caller has switched them off.

    Attributes:
        num_passes: the cost so far, in forward passes over `num_examples` examples; a backward pass counts two.
    """

    @torch.inference_mode(False)
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
        self._loss = loss
        self._normalisation = normalisation
        self._num_examples = num_examples
        self._blending = Blending(self._network, self._on_two) if blended else None
        self.num_passes = 0.0

    @property
    def follows(self) -> bool:
        """Whether there are BatchNorm statistics that follow the weights."""
        return bool(self._blending)

    def scale_free(self) -> frozenset[str]:
        """Names of the weights whose scale the statistics of the next layer undo."""
        return self._blending.scale_free(self._on_two) if self._blending else frozenset()

    def tail(self) -> frozenset[str] | None:
        """Names of the weights behind the last normalisation of an input, see `quietnn.repairs.branch_denoisers`."""
        return behind_last_normalisation(self._network, self._on_two, normalisation=self._normalisation)

    @torch.inference_mode(False)
    def gradient(
        self, weights: Weights, positions: Tensor, generator: torch.Generator
    ) -> tuple[float, dict[str, Tensor]]:
        """The mean loss at these weights, and its gradient in each of them."""
        self._write(weights)
        with self._following():  # on the way back, too: checkpointed activations are computed again there
            loss = _scalar(self._loss(self._network, positions, generator))
            if not loss.requires_grad:
                raise QuietnnError(
                    "the loss has no gradient; return the mean loss as a tensor, computed by calling the network that "
                    "is passed in, outside torch.no_grad"
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
        with self._following():
            return self._judge(self._network, positions)

    def judge_network(self, network: nn.Module, positions: Tensor) -> float:
        """The mean loss of another network in evaluation mode: of a copy, for a call may leave traces in buffers."""
        return self._judge(copy.deepcopy(network).eval(), positions)

    def judge_parts(self, network: nn.Module, parts: Sequence[Tensor]) -> Tensor:
        """The same for several parts of the examples, each by itself: how much they differ tells the error."""
        copied = copy.deepcopy(network).eval()
        return torch.tensor([self._judge(copied, part) for part in parts], dtype=torch.float64)

    @torch.inference_mode(False)
    def anchor(self, start: nn.Module) -> None:
        """From now on BatchNorm statistics are those of a start, carried along as the examples' change."""
        if self._blending:
            copied = copy.deepcopy(start).eval()
            everything = torch.arange(self._num_examples)
            with eagerly(copied):
                self._blending.anchor(copied, lambda: self._loss(copied, everything, None))
            self.num_passes += 1

    def finish(self, model: nn.Module, weights: Weights, positions: Tensor | None = None) -> nn.Module:
        """A copy of the model with these weights and, where statistics are blended, those of all examples or some."""
        finished = with_weights(model, weights)
        if self._blending:
            self.judge(weights, torch.arange(self._num_examples) if positions is None else positions)
            write_statistics(finished, self._blending.statistics())
        return finished

    @torch.no_grad()
    def _judge(self, network: nn.Module, positions: Tensor) -> float:
        self.num_passes += len(positions) / self._num_examples
        value = float(_scalar(self._loss(network, positions, None)))
        return math.inf if math.isnan(value) else value

    @contextmanager
    def _following(self) -> Iterator[None]:
        with eagerly(self._network), self._blending or nullcontext():
            yield

    def _on_two(self) -> object:
        with eagerly(self._network):
            return self._loss(self._network, torch.arange(min(2, self._num_examples)), None)

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
