"""The reference: weights as bits, at the capacity of the same link.

A real channel use at signal-to-noise ratio `eta` carries at most `C = log2(1 + eta) / 2` bits without error. Sent over
as many uses as there are weights, a model has `C` bits a weight, which are spent on uniform steps, the smallest whose
entropy, averaged over all weights, is at most `C`. Steps in proportion to each tensor's standard deviation give every
layer the same relative error. One step for the model has the least squared error, and leaves layers of small weights
nothing at few bits. Scalar quantisation loses up to a quarter bit a weight (docs/reference/channels.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quietnn.channels.base import Arrived, ByTensor, check_link_db
from quietnn.channels.moments import ErrorMoments
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights, checked

_SMALLEST = 2.0**-20
"""Of the steps that are tried, over the one that makes zeros of all weights."""

NUM_HALVINGS = 20
AT_ONCE = 5
"""Steps whose costs are asked for together: each asking may be a reading of a whole model, and several at once are
hardly dearer than one. Of entropies of weights the next five middles are mostly foreseen."""

Costs = Callable[[Sequence[float]], Sequence[float]]
"""The cost of each of some steps."""


@dataclass(frozen=True)
class CodedDigital:
    """Quantised weights at the capacity of a Gaussian channel, one real use a weight.

    Attributes:
        wnr_db: the signal-to-noise ratio of the link.
        per_tensor: steps in proportion to each tensor's standard deviation, or one for the model.

    >>> weights = {"w": torch.randn(5000, generator=torch.Generator().manual_seed(0))}
    >>> step = CodedDigital(wnr_db=12.0).steps(weights)["w"]
    >>> bits_per_weight(weights, {"w": [step]})[0] <= CodedDigital(wnr_db=12.0).capacity
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
        """The quantised weights, free of errors."""
        return self.settled(weights).transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> "SettledCode":
        """The code with its steps chosen, which quantises every tensor by itself."""
        return SettledCode(self.steps(weights))

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
            return bits_per_weight(weights, {name: [step * unit for step in steps] for name, unit in units.items()})

        step = smallest_within(costs, self.capacity, _SMALLEST * high, high)
        return {name: step * unit for name, unit in units.items()}


@dataclass(frozen=True)
class SettledCode(ByTensor):
    """A code whose steps, by tensor name, were chosen for all tensors together."""

    steps: Mapping[str, float]

    rounds = True

    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """The quantised weights, free of errors, scaled by the factor of least squared error; the seed changes nothing.

        That factor, one number a tensor, is sent along.
        """
        plain = _levels(tensor, self.steps[name]) * self.steps[name]
        decoded = (plain * ErrorMoments.of(tensor, plain).best_multiplier).to(tensor.dtype)
        return decoded, ErrorMoments.of(tensor, decoded).told


def bits_per_weight(weights: Mapping[str, Tensor], steps: Mapping[str, Sequence[float]]) -> list[float]:
    """The mean entropy of the quantised weights, each tensor coded by its own frequencies, for several steps of each.

    Every tensor is read once, and sums are exact in any order of tensors.

    >>> bits_per_weight({"w": torch.tensor([-1.0, 0.0, 1.0, 2.0])}, {"w": [1.0, 100.0]})
    [2.0, 0.0]
    """
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


def _unit(tensor: Tensor) -> float:
    """What a tensor's step is measured in: its root mean square, or anything where that is zero."""
    return math.sqrt(float(tensor.detach().double().square().mean())) or 1.0


def smallest_within(costs: Costs, limit: float, low: float, high: float) -> float:
    """The smallest step between two, found by halving their ratio 20 times, whose cost is at most the limit.

    The middles that plain bisection would look at next are foreseen from the costs known so far. Whichever turn out
    to be those that it does look at count, so the result is that of plain bisection however wrong the foresight was.
    Costs fall with the step, by and large, from above the limit at `low` to nothing at `high`.

    >>> round(smallest_within(lambda steps: [-math.log2(step) for step in steps], 3.0, 2.0**-10, 1.0), 5)
    0.125
    """
    known, done = {high: 0.0}, 0
    while done < NUM_HALVINGS:
        ahead = _foreseen(known, limit, low, high)[: NUM_HALVINGS - done]
        known.update(zip(ahead, costs(ahead), strict=True))
        while done < NUM_HALVINGS and (middle := math.sqrt(low * high)) in known:
            low, high = (middle, high) if known[middle] > limit else (low, middle)
            done += 1
    return high


def _foreseen(known: Mapping[float, float], limit: float, low: float, high: float) -> list[float]:
    """The next middles, if costs run straight between those known and rise by one where a step is halved."""
    steps = sorted(known)
    places, values = np.log2(steps), [known[step] for step in steps]
    middles: list[float] = []
    for _ in range(AT_ONCE):
        middle = math.sqrt(low * high)
        middles.append(middle)
        place = math.log2(middle)
        cost = float(np.interp(place, places, values)) + max(float(places[0]) - place, 0.0)
        low, high = (middle, high) if cost > limit else (low, middle)
    return middles
