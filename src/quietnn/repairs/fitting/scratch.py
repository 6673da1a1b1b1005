"""A private copy of a network, where losses are taken and their gradients in the noisy weights."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from quietnn.errors import QuietnnError, check_is
from quietnn.evidence import Evidence
from quietnn.losses import Verdict, cross_entropy
from quietnn.observation import Observation
from quietnn.repairs.beside.beside import Beside, beside_of
from quietnn.repairs.beside.part import output_axes
from quietnn.repairs.branches import behind_last_normalisation
from quietnn.repairs.fitting.moving_statistics import Blending, write_statistics
from quietnn.targets import with_weights
from quietnn.teaching import divergence
from quietnn.variants import Augment
from quietnn.watching.batch_moments import wide
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.weights import Weights

_STEPS_PER_EPOCH = 16
"""Mini-batches that examples are cut into. On 4,096 tokens one window a step closed 74 % of the gap in 6 passes, all
sixteen at once 66 % in 58 (one development draw)."""

_LABELS_PER_STEP = 100
"""Labels that a step sees at least: the hundred examples that methods for classifiers were made for are never cut."""

_listeners: ContextVar[tuple[Callable[[float], None], ...]] = ContextVar("listeners", default=())


@contextmanager
def on_pass(listener: Callable[[float], None]) -> Iterator[None]:
    """Tell a function of every pass over the examples that a fit takes, or of what part of one it was."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


class Scratch:
    """A private copy of a network whose noisy weights can be set, judged and differentiated.

    Dropout is off. BatchNorm uses its stored statistics or, with `blended`, follows the weights
    (`moving_statistics.py`): then scales and shifts that noise gave to its inputs matter little. Gradients are
    taken even where the caller has switched them off. After `model.gradient_checkpointing_enable()` of transformers
    the activations inside a block are computed again on the way back, in evaluation mode too.

    With `digital` the vectors that carry no noise can be moved as well: gains and biases of normalisation layers.

    `num_passes` is the cost so far, in forward passes over all examples; a backward pass counts two.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        observation: Observation[Any, Any],
        evidence: Evidence,
        *,
        blended: bool = False,
        digital: bool = False,
    ) -> None:
        self._observation = observation
        self._network = copy.deepcopy(observation.model).eval()
        parameters = dict(self._network.named_parameters(remove_duplicate=False))
        self._network.requires_grad_(False)
        for block in _checkpointed(self._network):
            block.__dict__["forward"] = partial(
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
            )
        for layer in self._network.modules():
            if isinstance(layer, nn.Embedding) and not layer.scale_grad_by_freq:
                layer.sparse = True  # its gradient has the rows that occur; a whole table is a tenth of a network
        self._moving = {name: parameters[name].requires_grad_() for name in observation.weights}
        self.gains: dict[str, Tensor] = {}
        if digital:
            noisy = {id(one) for one in self._moving.values()}
            clean = {name: one for name, one in self._network.named_parameters() if one.dim() == 1}
            clean = {name: one for name, one in clean.items() if id(one) not in noisy and one.is_floating_point()}
            self.gains = {name: one.detach().clone() for name, one in clean.items()}
            self._moving |= {name: one.requires_grad_() for name, one in clean.items()}
        self._evidence = evidence
        self.judge_by(evidence)
        self._normalisation = observation.normalisation
        self._batch_size = evidence.batch_size
        self.num_examples = len(evidence)
        self._blending = Blending(self._network, self._on_two) if blended else None
        labels_per_example = _labels_per_example(evidence)
        most = max(self.num_examples / _STEPS_PER_EPOCH, _LABELS_PER_STEP / labels_per_example)
        self._examples_per_step = math.ceil(most)
        self.num_batches = max(self.num_examples / self._examples_per_step, 1.0) if labels_per_example == 1 else 1.0
        """How many mini-batches make up all examples, as far as steps are to be shorter for it: windows of text, with
        hundreds of labels each, were measured with steps of full length."""
        self.num_passes = 0.0

    @property
    def follows(self) -> bool:
        """Whether there are BatchNorm statistics that follow the weights."""
        return bool(self._blending)

    def scale_free(self) -> frozenset[str]:
        """Names of the weights whose scale the statistics of the next layer undo."""
        return self._blending.scale_free(self._on_two) if self._blending else frozenset()

    @property
    def num_parameters(self) -> int:
        """Of the network, noisy or not."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def beside(self) -> Beside:
        """What stands beside the received weights already: gain and offset of the channel."""
        return beside_of(self._observation, self._observation.model, {})

    def output_axes(self) -> dict[str, int | None]:
        """Of each matrix, the axis that its outputs run along, if it has one."""
        return output_axes(self._network)

    def tail(self) -> frozenset[str] | None:
        """Names of the weights behind the last normalisation of an input, see `quietnn.repairs.branches`."""
        return behind_last_normalisation(self._network, self._on_two, normalisation=self._normalisation)

    def mini_batches(self, positions: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
        """What one step after another sees of the examples at these positions, without end.

        All of them, or mini-batches in random order where these hold labels enough: a hundred images, or a window of
        text. BatchNorm statistics that follow the weights are then told from each mini-batch.
        """
        size = min(self._examples_per_step, len(positions))
        while True:
            if size == len(positions):
                yield positions
                continue
            order = positions[torch.randperm(len(positions), generator=generator)]
            yield from torch.split(order[: len(order) // size * size], size)

    @torch.inference_mode(False)
    def gradient(
        self, weights: Weights, positions: Tensor, generator: torch.Generator
    ) -> tuple[float, dict[str, Tensor]]:
        """The mean loss at these weights, and its gradient in each of them."""
        self._write(weights)
        total = 0.0
        # On the way back, too: checkpointed activations are computed again there.
        with eagerly(self._network), self._blending or nullcontext():
            for part in torch.split(positions, self._batch_size):
                share = len(part) / len(positions)
                loss = _scalar(self._loss(self._network, part, generator))
                if not loss.requires_grad:
                    raise QuietnnError(
                        "the loss has no gradient; return the mean loss as a tensor, computed by calling the network "
                        "that is passed in, outside torch.no_grad"
                    )
                total += float(loss.detach()) * share
                torch.autograd.backward(loss * share, inputs=list(self._moving.values()))
        self._count((4 if self._asks_teacher else 3) * len(positions) / self.num_examples)
        gradients = {}
        for name, parameter in self._moving.items():
            gradients[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            parameter.grad = None
        return total, gradients

    def judge(self, weights: Weights, positions: Tensor) -> float:
        """The mean loss at these weights; infinite where it is not a number."""
        self._write(weights)
        with eagerly(self._network), self._blending or nullcontext():
            return self._judge(self._network, positions)

    def judge_parts(self, network: nn.Module, parts: Sequence[Tensor]) -> Tensor:
        """The mean loss of another network on each of several parts: how much they differ tells the error.

        It is left as it was, traces in buffers included.
        """
        with undisturbed(network):
            return torch.tensor([self._judge(network, part) for part in parts], dtype=torch.float64)

    def judge_each(self, network: nn.Module, parts: Sequence[Tensor], variants: Evidence | None = None) -> Verdict:
        """What another network does on each example, or its variant, part after part; it is left as it was.

        Where a loss tells no more than the mean of several, each has that of its part.
        """
        if self._evidence.mean_loss is not None:
            means = self.judge_parts(network, parts)
            return Verdict(torch.cat([mean.repeat(len(part)) for mean, part in zip(means, parts, strict=True)]), None)
        positions = torch.cat(list(parts))
        self._count(len(positions) / self.num_examples)
        with undisturbed(network), torch.no_grad():
            return (variants or self._evidence).take(positions).judge(network)

    def augment_by(self, variants: Augment) -> None:
        """From now on gradients are taken on variants of the inputs."""
        self.judge_by(replace(self._evidence, augment=variants))

    def judge_by(self, evidence: Evidence) -> None:
        """From now on losses of the same examples are these."""
        self._loss = evidence.loss_at
        self._asks_teacher = evidence.teacher is not None and bool(evidence.augment)

    @torch.inference_mode(False)
    def anchor(self, start: nn.Module) -> None:
        """From now on BatchNorm statistics are those of a start, carried along as the examples' change."""
        if self._blending:
            copied = copy.deepcopy(start).eval()

            def run() -> None:
                for part in torch.split(torch.arange(self.num_examples), self._batch_size):
                    self._loss(copied, part, None)

            with eagerly(copied):
                self._blending.anchor(copied, run)
            self._count(1.0)

    def finish(self, model: nn.Module, weights: Weights, positions: Tensor | None = None) -> nn.Module:
        """A copy of the model with these weights and, where statistics are blended, those of all examples or some."""
        finished = with_weights(model, weights)
        if self._blending:
            self.judge(weights, torch.arange(self.num_examples) if positions is None else positions)
            write_statistics(finished, self._blending.statistics())
        return finished

    @torch.no_grad()
    def _judge(self, network: nn.Module, positions: Tensor) -> float:
        self._count(len(positions) / self.num_examples)
        value = math.fsum(
            float(_scalar(self._loss(network, part, None))) * (len(part) / len(positions))
            for part in torch.split(positions, self._batch_size)
        )
        return math.inf if math.isnan(value) else value

    def _count(self, num_passes: float) -> None:
        self.num_passes += num_passes
        for listener in _listeners.get():
            listener(num_passes)

    def _on_two(self) -> object:
        with eagerly(self._network):
            return self._loss(self._network, torch.arange(min(2, self.num_examples)), None)

    def moving(self, weights: Weights) -> dict[str, Tensor]:
        """The noisy weights at some place, to be moved: those of this network itself, but for 16 bits.

        A step is less than 16 bits can hold.
        """
        self._write(weights)
        return {name: wide(parameter.detach()) for name, parameter in self._moving.items()}

    @torch.no_grad()
    def _write(self, weights: Weights) -> None:
        for name, parameter in self._moving.items():
            value = weights[name] if name in weights else self.gains[name]
            if value.data_ptr() != parameter.data_ptr():
                parameter.copy_(value)


def _checkpointed(network: nn.Module) -> list[nn.Module]:
    """The innermost layers that are marked for it."""
    marked = [layer for layer in network.modules() if getattr(layer, "gradient_checkpointing", False)]
    return [layer for layer in marked if not any(inner in marked for inner in layer.modules() if inner is not layer)]


def _labels_per_example(evidence: Evidence) -> float:
    """One for a class, and for the probabilities of all classes; one for each token of a text."""
    labels = evidence.in_memory().labels
    if labels is None or not labels.numel():
        return 1.0
    are_probabilities = labels.is_floating_point() and labels.dim() > 1 and evidence.loss in (cross_entropy, divergence)
    per_example: float = labels.numel() / len(labels) / (labels.shape[1] if are_probabilities else 1)
    return max(per_example, 1.0)


def _scalar(loss: Tensor) -> Tensor:
    check_is(loss, Tensor, "the loss", "return the mean loss as a tensor, with its gradient, and not float(loss)")
    if loss.numel() != 1:
        raise QuietnnError(
            f"the loss has shape {tuple(loss.shape)}; return the mean loss of the positions, for example loss.mean()"
        )
    return loss.reshape(())
