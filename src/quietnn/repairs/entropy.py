"""Test-time adaptation by entropy, from its papers: a baseline that knows nothing of the noise on the weights.

Gains and biases of normalisation layers move until outputs are sure; BatchNorm uses the statistics of the batch. TENT
takes all inputs (Wang et al., ICLR 2021). EATA leaves out unsure and repetitive ones, weighs the others and holds
important parameters (Niu et al., ICML 2022). SAR looks for flat minima and starts again when outputs collapse (Niu et
al., ICLR 2023).
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import outputs_of, take
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence, some_inputs
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import re_estimate
from quietnn.repairs.kinds import has_stored_statistics
from quietnn.watching.makers import eagerly
from quietnn.watching.survey import BatchNorm
from quietnn.weights import is_normalisation

_FISHER_BATCH = 64
_MOMENTUM, _MEMORY = 0.9, 0.9


@dataclass(frozen=True)
class Adaptation:
    """How an entropy method steps; the defaults of each are those of its paper for CIFAR-10, or for ResNets.

    Attributes:
        learning_rate: of Adam, or of SGD with momentum 0.9.
        adam: which of them.
        margin: leaves out inputs whose entropy is above this share of `log K`.
        weighs: whether inputs that are surer count more.
        redundancy: leaves out inputs whose outputs have a cosine with the mean so far above it.
        anchor: holds parameters by their Fisher information.
        sharpness: the radius within which the loss must stay low.
        collapse: starts again where the mean entropy falls below it.
        num_steps: gradients taken.
    """

    learning_rate: float
    adam: bool = False
    margin: float | None = None
    weighs: bool = False
    redundancy: float | None = None
    anchor: float = 0.0
    sharpness: float | None = None
    collapse: float | None = None
    num_steps: int = 32

    def __post_init__(self) -> None:
        """Refuse what cannot be stepped by."""
        if not self.learning_rate > 0 or self.num_steps < 1:
            raise InvalidConfig(
                f"learning_rate is {self.learning_rate} and num_steps {self.num_steps}; both must be positive: "
                "Adaptation(learning_rate=1e-3, num_steps=32)"
            )


TENT = Adaptation(1e-3, adam=True)
EATA = Adaptation(5e-3, margin=0.4, weighs=True, redundancy=0.4, anchor=1.0)
SAR = Adaptation(2.5e-4, margin=0.4, sharpness=0.05, collapse=0.2)


@torch.inference_mode(False)
def adapt(what: object, inputs: object, settings: Adaptation = TENT, *, name: str = "tent") -> Repaired:
    """Move gains and biases of normalisation layers until a classifier is sure of its inputs.

    Args:
        what: the network as received.
        inputs: what the network is for, without labels, in any form of `Evidence`.
        settings: `TENT`, `EATA`, `SAR`, or your own.
        name: of the method in the result.

    Returns:
        The network, its BatchNorm statistics those of the inputs. Details: `num_used`, the inputs of the last step.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> adapt(network, torch.rand(20, 4)).passes
    97.0
    """
    observation, evidence = observe(what), some_inputs(inputs, "adapt")
    known = evidence.in_memory()
    network = copy.deepcopy(observation.model).eval().requires_grad_(False)
    layers = [layer for layer in network.modules() if is_normalisation(layer, observation.normalisation)]
    moving = [one.requires_grad_() for layer in layers for one in layer.parameters(recurse=False)]
    if not moving:
        raise InvalidConfig("no normalisation layer of this network has a gain or a bias to adapt; use another method")
    for layer in layers:
        if isinstance(layer, BatchNorm):
            layer.train()  # by the statistics of the batch
    with eagerly(network):
        descent = _Descent(network, moving, known, settings)
        descent.run()
    network.requires_grad_(False).eval()
    passes = descent.passes
    if has_stored_statistics(network):
        made = re_estimate(observation.on(network), known)
        network, passes = made.model, passes + made.passes
    for parameter, own in zip(network.parameters(), observation.model.parameters(), strict=True):
        parameter.requires_grad_(own.requires_grad)
    network.train(observation.model.training)
    return Repaired(network, name, passes, {"num_used": descent.num_used})


class _Descent:
    """The descent of one network."""

    def __init__(self, network: nn.Module, moving: list[Tensor], known: Evidence, settings: Adaptation) -> None:
        self._network, self._moving, self._known, self._settings = network, moving, known, settings
        self._start = [one.detach().clone() for one in moving]
        self._mean_output: Tensor | None = None
        self.passes = 0.0
        self.num_used = 0

    def run(self) -> None:
        settings = self._settings
        fisher = self._fisher() if settings.anchor else None
        optimiser = self._optimiser()
        level: float | None = None
        for _, positions in zip(range(settings.num_steps), self._batches(), strict=False):
            used, loss = self._loss(positions)
            self.num_used = len(used)
            if not self.num_used:
                continue
            if fisher is not None:
                parts = zip(fisher, self._moving, self._start, strict=True)
                loss = loss + settings.anchor * sum((one * (now - start).square()).sum() for one, now, start in parts)
            self._differentiate(loss)
            if settings.sharpness is not None:
                level = self._sharpened(used, level)
            optimiser.step()
            if settings.collapse is not None and level is not None and level < settings.collapse:
                self._reset()
                optimiser, level = self._optimiser(), None

    def _optimiser(self) -> torch.optim.Optimizer:
        rate = self._settings.learning_rate
        return (
            torch.optim.Adam(self._moving, rate)
            if self._settings.adam
            else torch.optim.SGD(self._moving, rate, momentum=_MOMENTUM)
        )

    def _batches(self) -> Iterator[Tensor]:
        while True:
            yield from torch.split(torch.arange(len(self._known)), self._known.batch_size)

    def _outputs(self, positions: Tensor) -> Tensor:
        self.passes += 3 * len(positions) / len(self._known)
        logits = outputs_of(self._network, take(self._known.inputs, positions))
        if logits.dim() != 2 or logits.shape[1] < 2:
            raise InvalidConfig(
                f"the network's outputs have shape {tuple(logits.shape)}; entropy needs (examples, classes), with two "
                "classes or more"
            )
        return logits

    def _loss(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The positions that count, and their mean entropy."""
        settings = self._settings
        logits = self._outputs(positions)
        entropy, limit = entropy_of(logits), math.log(logits.shape[1])
        keep = torch.ones_like(entropy, dtype=torch.bool)
        if settings.margin is not None:
            keep = entropy.detach() < settings.margin * limit
        probabilities = logits.detach().softmax(1)
        if settings.redundancy is not None and self._mean_output is not None:
            likeness = functional.cosine_similarity(probabilities, self._mean_output[None])
            keep &= likeness.abs() < settings.redundancy
        if settings.redundancy is not None and bool(keep.any()):
            mean, before = probabilities[keep].mean(0), self._mean_output
            self._mean_output = mean if before is None else _MEMORY * before + (1 - _MEMORY) * mean
        counted = entropy[keep]
        if settings.weighs and settings.margin is not None:
            counted = counted * (settings.margin * limit - counted.detach()).exp()
        return positions[keep.cpu()], counted.mean()

    def _differentiate(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self._moving, allow_unused=True)
        for parameter, gradient in zip(self._moving, gradients, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient

    def _sharpened(self, used: Tensor, level: float | None) -> float | None:
        """The gradient at the worst place nearby, in the place of that here; the mean entropy so far is returned."""
        gradients = [one.grad for one in self._moving if one.grad is not None]
        norm = torch.stack([one.norm() for one in gradients]).norm()
        reach = [float(self._settings.sharpness or 0.0) * one / (norm + 1e-12) for one in gradients]
        with torch.no_grad():
            for parameter, step in zip(self._moving, reach, strict=True):
                parameter.add_(step)
        kept, loss = self._loss(used)
        if len(kept):
            self._differentiate(loss)
            value = float(loss.detach())
            level = value if level is None else _MEMORY * level + (1 - _MEMORY) * value
        with torch.no_grad():
            for parameter, step in zip(self._moving, reach, strict=True):
                parameter.sub_(step)
        return level

    def _reset(self) -> None:
        with torch.no_grad():
            for parameter, start in zip(self._moving, self._start, strict=True):
                parameter.copy_(start)

    def _fisher(self) -> list[Tensor]:
        """Squared gradients of the loss against the network's own answers, batch by batch."""
        parts = torch.split(torch.arange(len(self._known)), _FISHER_BATCH)
        found = [torch.zeros_like(one) for one in self._moving]
        for positions in parts:
            logits = self._outputs(positions)
            self._differentiate(functional.cross_entropy(logits, logits.detach().argmax(1)))
            for total, parameter in zip(found, self._moving, strict=True):
                assert parameter.grad is not None  # `_differentiate` leaves none out
                total += parameter.grad.square() / len(parts)
        return found


def entropy_of(logits: Tensor) -> Tensor:
    """The entropy of each example's probabilities."""
    entropy: Tensor = torch.special.entr(logits.softmax(1)).sum(1)
    return entropy
