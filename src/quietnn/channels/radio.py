"""Radio links: weights as complex symbols of unit power, and back; and one link with Rayleigh block fading, built in.

The sender removes the mean of all its weights, divides by their standard deviation and sends two weights as real and
imaginary part of a symbol, `x = (a + jb) / sqrt(2)`, without any coding. Noise of variance `N_0` on a symbol is then
noise of variance `sigma_w^2 N_0` on each of its weights, so the signal-to-noise ratio of the link is the WNR.

*Block fading* sends symbols in blocks, `y = h x + n`, with one coefficient `h ~ CN(0, 1)` for each block and
`n ~ CN(0, N_0)`. The receiver learns `h` from `P` pilots of unit power: the least-squares estimate has an error of
variance `e = N_0 / P`, the best estimate given it is `h' = h_ls / (1 + e)`, with `h = h' + g` and
`g ~ CN(0, e / (1 + e))` independent of `h'`. Dividing,

    y / h' = x + (g x + n) / h'          noise variance of a symbol  (N_0 + p e / (1 + e)) / |h'|^2

where `p` is the mean power of the tensor's symbols. The receiver knows every number in it, so it knows the noise
variance of each weight. In a deep fade a whole block is all but lost. The part `g x / h'` is the same multiple of all
symbols of a block: its variance is right, but it is neither white nor independent of the weights.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.base import check_link_db, check_whole
from quietnn.channels.randomness import check_seed, standard_normal
from quietnn.errors import InvalidWeights
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights, check_weights, checked

_LARGEST_BLOCK = 2**31


class Link(ABC):
    """A channel that carries symbols, those of each tensor by themselves."""

    @abstractmethod
    def carry(self, symbols: Tensor, power: float, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """The equalised symbols of a tensor and their noise variances, given the mean power of what is sent."""

    @abstractmethod
    def num_uses(self, num_symbols: int) -> int:
        """Complex channel uses that the symbols of a tensor take, with all that goes with them."""

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What the receiver makes of the symbols, with the noise variance of every weight."""
        return self.settled(weights).transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> "SettledLink":
        """The link with its power set by all weights, which sends every tensor by itself."""
        statistics = WeightStatistics.from_clean(tensor for _, tensor in checked(weights))
        if statistics.variance == 0:
            raise InvalidWeights("the weights are all the same; there is no signal whose power a link could be set by")
        return SettledLink(self, statistics.mean, math.sqrt(statistics.variance))

    def rate(self, weights: Weights) -> float:
        """Real channel uses a weight, of which a complex one is two; 1 where there is nothing to send."""
        total = sum(tensor.numel() for tensor in weights.values())
        uses = sum(self.num_uses((tensor.numel() + 1) // 2) for tensor in weights.values())
        return 2 * uses / total if total else 1.0


@dataclass(frozen=True)
class SettledLink:
    """A link whose sender and receiver agree on mean and standard deviation of all weights that are sent together."""

    link: Link
    mean: float
    std: float

    by_tensor: ClassVar[bool] = True

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What the receiver makes of the symbols, with the noise variance of every weight."""
        check_weights(weights)
        check_seed(seed)
        received: dict[str, Tensor] = {}
        noise: dict[str, TensorNoise] = {}
        for name, tensor in weights.items():
            # The mean power of a tensor's symbols is 1 on average over the model.
            power = float((tensor.detach().double() - self.mean).square().mean()) / self.std**2
            arrived, variance = self.link.carry(self._symbols(tensor), power, seed=seed, name=name)
            flat = torch.view_as_real(arrived * math.sqrt(2)).flatten()[: tensor.numel()]
            received[name] = (flat * self.std + self.mean).view(tensor.shape).to(tensor.dtype)
            by_weight = variance.double().repeat_interleave(2)[: tensor.numel()]
            noise[name] = (by_weight * self.std**2).view(tensor.shape)
        return Observation(received, noise, rounded=False)

    def _symbols(self, tensor: Tensor) -> Tensor:
        """A tensor as complex symbols, its last one padded with zero."""
        flat = (tensor.detach().flatten().to(torch.float32) - self.mean) / self.std
        padded = torch.cat([flat, flat.new_zeros(flat.numel() % 2)]).view(-1, 2)
        return torch.complex(padded[:, 0], padded[:, 1]) / math.sqrt(2)


@dataclass(frozen=True)
class BlockFading(Link):
    """Rayleigh block fading with channel estimation from pilots and zero-forcing equalisation.

    Attributes:
        wnr_db: mean signal-to-noise ratio of the link, which is the WNR it would have without fading.
        block: symbols that share a coefficient; two weights a symbol.
        num_pilots: pilots in each block; 0 means that the receiver knows the coefficients.

    >>> link = BlockFading(wnr_db=300.0, num_pilots=0)
    >>> link.transmit({"w": torch.tensor([1.0, -1.0, 3.0])}, seed=0).received["w"]
    tensor([ 1.0000, -1.0000,  3.0000])
    """

    wnr_db: float
    block: int = 512
    num_pilots: int = 8

    def __post_init__(self) -> None:
        """Refuse a ratio that is none, and blocks and pilots that cannot be counted."""
        check_link_db(self.wnr_db)
        check_whole("block", self.block, 1, _LARGEST_BLOCK)
        check_whole("num_pilots", self.num_pilots, 0, _LARGEST_BLOCK)

    def num_uses(self, num_symbols: int) -> int:
        """Complex channel uses of a tensor, pilots included."""
        return num_symbols + math.ceil(num_symbols / self.block) * self.num_pilots

    def carry(self, symbols: Tensor, power: float, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """The equalised symbols of a tensor and their noise variances."""
        num_blocks = math.ceil(len(symbols) / self.block)
        spread = 1.0 / db_to_ratio(self.wnr_db)
        error = spread / self.num_pilots if self.num_pilots else 0.0
        coefficient = _complex_normal(num_blocks, seed=seed, name=f"{name}:fading")
        estimate = coefficient + math.sqrt(error) * _complex_normal(num_blocks, seed=seed, name=f"{name}:pilots")
        estimate = estimate / (1.0 + error)
        noise = math.sqrt(spread) * _complex_normal(len(symbols), seed=seed, name=f"{name}:noise")
        block = torch.arange(len(symbols)) // self.block
        arrived = (coefficient[block] * symbols + noise) / estimate[block]
        variance = (spread + power * error / (1.0 + error)) / estimate.abs().double().square()
        return arrived, variance[block]


def _complex_normal(num_values: int, *, seed: int, name: str) -> Tensor:
    """Independent `CN(0, 1)` values."""
    values = standard_normal(2 * num_values, seed=seed, name=name).view(-1, 2)
    return torch.complex(values[:, 0], values[:, 1]) / math.sqrt(2)
