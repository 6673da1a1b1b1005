"""A radio link with Rayleigh block fading, built in.

Symbols are sent in blocks, `y = h x + n`, with one coefficient `h ~ CN(0, 1)` for each block and `n ~ CN(0, N_0)`. The
receiver learns `h` from `P` pilots of unit power: the least-squares estimate has an error of variance `e = N_0 / P`,
the best estimate given it is `h' = h_ls / (1 + e)`, with `h = h' + g` and `g ~ CN(0, e / (1 + e))` independent of `h'`.
Dividing,

    y / h' = x + (g x + n) / h'          noise variance of a symbol  (N_0 + p e / (1 + e)) / |h'|^2

where `p` is the mean power of the tensor's symbols. The receiver knows every number in it, so it knows the noise
variance of each weight. In a deep fade a whole block is all but lost. The part `g x / h'` is the same multiple of all
symbols of a block: its variance is right, but it is neither white nor independent of the weights.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.channels.radio import Normaliser, SettledLink, num_symbols, real_uses_a_weight
from quietnn.channels.randomness import standard_normal
from quietnn.channels.settings import check_link_db, check_whole
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights

_LARGEST_BLOCK = 2**31


@dataclass(frozen=True)
class BlockFading:
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

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What the receiver makes of each block, with the noise variance of every weight."""
        return self.settled(weights).transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> SettledLink:
        """The link with its power set by all weights, which sends every tensor by itself."""
        return SettledLink(self, Normaliser.of(weights))

    def channel_uses(self, weights: Weights) -> int:
        """Complex channel uses, pilots included."""
        blocks = sum(math.ceil(num_symbols([tensor]) / self.block) for tensor in weights.values())
        return num_symbols(weights.values()) + blocks * self.num_pilots

    def rate(self, weights: Weights) -> float:
        """Real channel uses a weight, pilots included."""
        return real_uses_a_weight(self.channel_uses(weights), weights)

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
