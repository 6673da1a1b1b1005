"""What all radio links share: weights as complex symbols of unit power, and back.

The sender removes the mean of all its weights, divides by their standard deviation and sends two weights as real and
imaginary part of a symbol, `x = (a + jb) / sqrt(2)`, without any coding. Noise of variance `N_0` on a symbol is then
noise of variance `sigma_w^2 N_0` on each of its weights, so the signal-to-noise ratio of the link is the WNR.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from quietnn.channels.randomness import check_seed
from quietnn.errors import InvalidWeights
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.weights import Weights, check_weights, checked


@dataclass(frozen=True)
class Normaliser:
    """Mean and standard deviation of all weights that are sent together; the receiver is told both."""

    mean: float
    std: float

    @classmethod
    def of(cls, weights: Weights) -> "Normaliser":
        """The normaliser of a model, whose tensors are looked at once, one after the other."""
        statistics = WeightStatistics.from_clean(tensor for _, tensor in checked(weights))
        if statistics.variance == 0:
            raise InvalidWeights("the weights are all the same; there is no signal whose power a link could be set by")
        return cls(statistics.mean, math.sqrt(statistics.variance))

    def power(self, tensor: Tensor) -> float:
        """The mean power of a tensor's symbols; 1 on average over the model."""
        return float((tensor.detach().double() - self.mean).square().mean()) / self.std**2

    def symbols(self, tensor: Tensor) -> Tensor:
        """A tensor as complex symbols, its last one padded with zero."""
        flat = (tensor.detach().flatten().to(torch.float32) - self.mean) / self.std
        padded = torch.cat([flat, flat.new_zeros(flat.numel() % 2)]).view(-1, 2)
        return torch.complex(padded[:, 0], padded[:, 1]) / math.sqrt(2)

    def weights(self, symbols: Tensor, like: Tensor) -> Tensor:
        """The weights that symbols stand for, in the shape of a tensor."""
        flat = torch.view_as_real(symbols * math.sqrt(2)).flatten()[: like.numel()]
        return (flat * self.std + self.mean).view(like.shape).to(like.dtype)

    def noise(self, symbol_noise: Tensor, like: Tensor) -> Tensor:
        """The noise variance of every weight, from that of every symbol."""
        flat = symbol_noise.double().repeat_interleave(2)[: like.numel()]
        return (flat * self.std**2).view(like.shape)


class Link(Protocol):
    """Carries symbols, those of each tensor by themselves."""

    def carry(self, symbols: Tensor, power: float, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """The equalised symbols of a tensor and their noise variances, given the mean power of what is sent."""
        ...


@dataclass(frozen=True)
class SettledLink:
    """A link whose sender and receiver agree on mean and standard deviation of all weights.

    Attributes:
        link: what the symbols go through.
        normaliser: of all weights that are sent together.
    """

    link: Link
    normaliser: Normaliser

    by_tensor: ClassVar[bool] = True

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What the receiver makes of the symbols, with the noise variance of every weight."""
        check_weights(weights)
        check_seed(seed)
        received: dict[str, Tensor] = {}
        noise: dict[str, TensorNoise] = {}
        for name, tensor in weights.items():
            symbols, power = self.normaliser.symbols(tensor), self.normaliser.power(tensor)
            arrived, variance = self.link.carry(symbols, power, seed=seed, name=name)
            received[name] = self.normaliser.weights(arrived, tensor)
            noise[name] = self.normaliser.noise(variance, tensor)
        return Observation(received, noise, rounded=False)


def num_symbols(tensors: Iterable[Tensor]) -> int:
    """How many symbols tensors take: two weights each.

    >>> num_symbols([torch.zeros(3), torch.zeros(4)])
    4
    """
    return sum((tensor.numel() + 1) // 2 for tensor in tensors)


def real_uses_a_weight(complex_uses: int, weights: Weights) -> float:
    """Real channel uses a weight, of which a complex one is two; 1 where there is nothing to send.

    >>> real_uses_a_weight(6, {"w": torch.zeros(10)})
    1.2
    """
    total = sum(tensor.numel() for tensor in weights.values())
    return 2 * complex_uses / total if total else 1.0
