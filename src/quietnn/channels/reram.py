"""Resistive memory, by the errors measured on a chip one second, one day and two days after writing.

Wan et al., "A compute-in-memory chip based on resistive random-access memory" (Nature, 2022), in the polynomials that
the open model fitted to its figures (aihwkit, Rasch et al., AICAS 2021). With `x` the conductance over `g_max = 40 uS`,

    read    max(x + sigma_t(x) n, 0)          sigma_t a polynomial of degree four in x

Resistive memory relaxes rather than drifts: the spread grows, the mean stays. Not modelled: other times, fast read
noise (about one per cent), temperature, converters, and voltage drops in the array.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.conductance import LARGEST_FACTOR, Draws, shared_noise, transmit_through
from quietnn.channels.settings import check_number
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights

G_MAX = 40.0

SPREADS = {
    1.0: (0.348, 16.030, -43.853, 45.393, -16.815),
    86_400.0: (0.701, 22.086, -50.773, 47.095, -16.458),
    172_800.0: (0.782, 20.274, -43.507, 37.062, -11.934),
}
"""Standard deviation in uS by seconds after writing: coefficients of 1, x, x^2, x^3, x^4."""


@dataclass(frozen=True)
class ReRAM:
    """Resistive memory, read one second, one day or two days after it was written.

    Attributes:
        seconds: since writing: 1, 86400 or 172800.
        spread: scales the error; 0 is none, 1 as measured.
        compensate: multiply each tensor by one factor that restores its sum of absolute values.

    >>> ReRAM(seconds=1, spread=0.0).transmit({"w": torch.tensor([0.5, -1.0])}, seed=0).received["w"]
    tensor([ 0.5000, -1.0000])
    """

    seconds: float = 1.0
    spread: float = 1.0
    compensate: bool = False

    by_tensor: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse times that were not measured."""
        if self.seconds not in tuple(SPREADS):  # a tuple, for the value may be anything
            times = ", ".join(f"{time:g}" for time in SPREADS)
            raise InvalidConfig(f"seconds is {self.seconds!r}; this memory was measured at {times} seconds only")
        check_number("spread", self.spread, 0, LARGEST_FACTOR, note="; 0 is none, 1 is as measured")

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What is read of the weights, with gain and noise as the model predicts them for each tensor."""
        return transmit_through(self, weights, seed=seed, compensate=self.compensate)

    def shared_noise(self, tensor: Tensor) -> float:
        """The part of the noise variance that is the same whenever a tensor is written."""
        return shared_noise(self, tensor)

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        """The conductances one second after writing, relative to the largest."""
        return (target + self._std(target, 1.0) * draws.normal("write", target)).clamp_(min=0.0)

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        """The conductances when they are read; later ones are drawn anew, as the model gives no path over time."""
        if self.seconds == 1.0:
            return written
        return (target + self._std(target, self.seconds) * draws.normal("read", target)).clamp_(min=0.0)

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read: those of a normal held at zero."""
        std = self._std(target, self.seconds).clamp(min=1e-12)
        below = torch.special.ndtr(target / std)
        density = torch.exp(-(target / std).square() / 2) / math.sqrt(2 * math.pi)
        first = target * below + std * density
        return first, (target.square() + std.square()) * below + target * std * density

    def _std(self, target: Tensor, seconds: float) -> Tensor:
        total = torch.zeros_like(target)
        for coefficient in reversed(SPREADS[seconds]):
            total = total * target + coefficient
        return total * (self.spread / G_MAX)
