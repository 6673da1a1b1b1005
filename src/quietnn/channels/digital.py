"""The reference: weights as bits, at the capacity of the same link.

A real channel use at signal-to-noise ratio `eta` carries at most `C = log2(1 + eta) / 2` bits without error. Sent
digitally over as many uses as there are weights, a model therefore has `C` bits a weight. Here they are spent as
practice would: uniform steps, each tensor's levels entropy-coded by their own frequencies and scaled by the one factor
that is best for it, everything decoded without error. Steps are the smallest whose entropy, averaged over all weights,
is at most `C`: either in proportion to each tensor's standard deviation, so that every layer has the same relative
error, or one for the model, which has the least squared error and leaves layers of small weights nothing at few bits.

For Gaussian weights no code can do better than squared error `sigma_w^2 2^-2C = sigma_w^2 / (1 + eta)`, which is just
that of sending the weights as they are and MMSE (Goblick, "Theoretical limitations on the transmission of data from
analog sources", 1965). What separates the two in practice: a digital code can give small layers fewer bits, scalar
quantisation loses up to a quarter bit a weight, and a code fails altogether below the ratio it was made for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.bisection import smallest_within
from quietnn.channels.moments import ErrorMoments, weight_points
from quietnn.channels.randomness import check_seed
from quietnn.channels.settings import check_link_db
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights, check_weights, checked

_SMALLEST = 2.0**-20
"""Of the steps that are tried, over the one that makes zeros of all weights."""


@dataclass(frozen=True)
class CodedDigital:
    """Quantised weights at the capacity of a Gaussian channel, one real use a weight.

    Attributes:
        wnr_db: the signal-to-noise ratio of the link.
        per_tensor: steps in proportion to each tensor's standard deviation, or one for the model.

    >>> weights = {"w": torch.randn(5000, generator=torch.Generator().manual_seed(0))}
    >>> bits_per_weight(weights, CodedDigital(wnr_db=12.0).steps(weights)) <= CodedDigital(12.0).capacity
    True
    """

    wnr_db: float
    per_tensor: bool = True

    def __post_init__(self) -> None:
        """Refuse a ratio that is none."""
        check_link_db(self.wnr_db)

    @property
    def capacity(self) -> float:
        """Bits for each real channel use."""
        return math.log2(1.0 + db_to_ratio(self.wnr_db)) / 2

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The quantised weights, free of errors; the seed changes nothing."""
        return self.settled(weights).transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> "SettledCode":
        """The code with its steps chosen, which quantises every tensor by itself."""
        return SettledCode(self.steps(weights))

    def predict(self, weights: Weights) -> dict[str, ErrorMoments]:
        """Gain and noise to be expected of each tensor at these steps, integrated over quantiles of its weights."""
        found: dict[str, ErrorMoments] = {}
        for name, step in self.steps(weights).items():
            points = weight_points(weights[name])
            found[name] = replace(ErrorMoments.of(points, _decoded(points, step)), num_weights=weights[name].numel())
        return found

    def steps(self, weights: Weights) -> dict[str, float]:
        """The smallest steps that the capacity pays for, by bisection on what they have in common."""
        if not weights:
            return {}
        units: dict[str, float] = {}
        largest = 0.0
        for name, tensor in checked(weights):
            units[name] = _unit(tensor) if self.per_tensor else 1.0
            largest = max(largest, float(tensor.detach().abs().max()) / units[name])
        # At this step every weight is zero, and costs nothing; where all weights are, any step does.
        high = 2.5 * largest or 1.0

        def costs(steps: Sequence[float]) -> list[float]:
            return _bits(weights, {name: [step * unit for step in steps] for name, unit in units.items()})

        step = smallest_within(costs, self.capacity, _SMALLEST * high, high)
        return {name: step * unit for name, unit in units.items()}


@dataclass(frozen=True)
class SettledCode:
    """A code whose steps were chosen for all tensors together.

    Attributes:
        steps: by tensor name.
    """

    steps: Mapping[str, float]

    by_tensor: ClassVar[bool] = True

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The quantised weights, free of errors; the seed changes nothing."""
        check_weights(weights)
        check_seed(seed)
        received = {name: _decoded(tensor, self.steps[name]) for name, tensor in weights.items()}
        moments = {name: ErrorMoments.of(tensor, received[name]) for name, tensor in weights.items()}
        noise: dict[str, TensorNoise] = {name: own.noise_variance for name, own in moments.items()}
        gain = {name: own.gain for name, own in moments.items()}
        offset = {name: own.offset for name, own in moments.items()}
        return Observation(received, noise, gain, offset, rounded=True)


def bits_per_weight(weights: Mapping[str, Tensor], steps: Mapping[str, float]) -> float:
    """The mean entropy of the quantised weights, each tensor coded by its own frequencies.

    >>> bits_per_weight({"w": torch.tensor([-1.0, 0.0, 1.0, 2.0])}, {"w": 1.0})
    2.0
    """
    return _bits(weights, {name: [step] for name, step in steps.items()})[0]


def _bits(weights: Mapping[str, Tensor], steps: Mapping[str, Sequence[float]]) -> list[float]:
    """The same for several steps of each tensor, with one look at each; exact sums, in any order of tensors."""
    sizes, parts = [], []
    for name, tensor in weights.items():
        sizes.append(tensor.numel())
        parts.append([_entropy(tensor, step) * tensor.numel() for step in steps[name]])
    return [math.fsum(column) / sum(sizes) for column in zip(*parts, strict=True)]


def _entropy(tensor: Tensor, step: float) -> float:
    """Bits a weight."""
    levels = _levels(tensor, step).flatten().long()
    counts = torch.bincount(levels.sub_(levels.min()))
    frequency = counts[counts > 0].double() / tensor.numel()
    return float(-(frequency * frequency.log2()).sum())


def _levels(tensor: Tensor, step: float) -> Tensor:
    return (tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)) / step).round_()


def _decoded(tensor: Tensor, step: float) -> Tensor:
    """The levels, scaled by the factor of least squared error; one number a tensor is sent along."""
    plain = _levels(tensor, step) * step
    return (plain * ErrorMoments.of(tensor, plain).best_multiplier).to(tensor.dtype)


def _unit(tensor: Tensor) -> float:
    """What a tensor's step is measured in: its root mean square, or anything where that is zero."""
    return math.sqrt(float(tensor.detach().double().square().mean())) or 1.0
