"""Phase-change and resistive memory by what was measured on chips, in the numbers of the open model (aihwkit, Rasch et
al., AICAS 2021). `x` is the conductance over the largest, and every `n` is a standard normal of its own.

*Phase-change memory* is written with an error, drifts, and is read with noise that grows with time (Nandakumar et al.,
ICECS 2019; Joshi et al., Nature Communications 2020). `t` is the time since writing, `t_0 = 20 s` that of the first
reading, `t_r = 250 ns` that of a read:

    written   x_0 = max(x + sigma(x) n, 0)              sigma(x) = (0.26348 + 1.9650 x - 1.1731 x^2) / 25
    drift     x_t = x_0 (t / t_0)^-nu                   nu = |mu(x) + s(x) n|
              mu(x) = clip(0.0244 - 0.0155 ln x, 0.049, 0.1)        s(x) = clip(-0.0059 - 0.0125 ln x, 0.008, 0.045)
    read      max(x_t (1 + kappa n), 0)                 kappa = q(x_0) sqrt(ln((t + t_r) / (2 t_r)))
              q(x) = min(0.0088 / max(x^0.65, 0.001), 0.2)

*Resistive memory* relaxes rather than drifts: the spread grows, the mean stays (Wan et al., Nature 2022). Its fast read
noise, about one per cent, is left out; docs/reference/channels.md tells what else is not modelled.

    read      max(x + sigma_t(x) n, 0)                  sigma_t a polynomial of degree four in x
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.base import check_number, check_whole
from quietnn.channels.conductance import Draws, Memory
from quietnn.channels.moments import normal_points
from quietnn.errors import InvalidConfig

FIRST_READING = 20.0
READ_TIME = 250e-9
PROGRAMMING = (0.26348, 1.9650, -1.1731)

SPREADS = {
    1.0: (0.348, 16.030, -43.853, 45.393, -16.815),
    86_400.0: (0.701, 22.086, -50.773, 47.095, -16.458),
    172_800.0: (0.782, 20.274, -43.507, 37.062, -11.934),
}
"""Standard deviation of resistive memory in uS by seconds after writing: coefficients of 1, x, x^2, x^3, x^4."""

_LARGEST_FACTOR = 1e3
"""By which a measured law may be scaled."""

_TINY = 1e-7
_LONGEST = 1e12
"""Seconds, 30,000 years: far past any measurement."""
_NUM_NORMALS = 301
_WIDEST_TILE = 2**20


@dataclass(frozen=True)
class PCM(Memory):
    """Phase-change memory, read some time after it was written.

    Attributes:
        seconds: since the first reading, 20 s after writing.
        compensate: global drift compensation, one factor for each tensor.
        programming: scales the error of writing; 0 is none, 1 as measured.
        reading: scales the noise of reading.
        drift: scales the exponents of drift.
        tile: inputs that share a tile, 512 on chips of the field; 0 puts a tensor on one.
        largest: the conductance in uS that the largest weight has.

    >>> silent = PCM(seconds=0.0, programming=0.0, reading=0.0)
    >>> silent.transmit({"w": torch.tensor([0.5, -1.0])}, seed=0).received["w"]
    tensor([ 0.5000, -1.0000])
    """

    seconds: float
    compensate: bool = True
    programming: float = 1.0
    reading: float = 1.0
    drift: float = 1.0
    tile: int = 0

    largest: ClassVar[float] = 25.0

    def __post_init__(self) -> None:
        """Refuse times and scales below zero."""
        check_number("seconds", self.seconds, 0, _LONGEST)
        for name in ("programming", "reading", "drift"):
            check_number(name, getattr(self, name), 0, _LARGEST_FACTOR)
        check_whole("tile", self.tile, 0, _WIDEST_TILE)

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        return (target + self._writing_std(target) * draws.normal("write", target)).clamp_(min=0.0)

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        mean, std = _drift_law(target)
        exponent = (mean + std * draws.normal("drift", target)).abs() * self.drift
        drifted = written * torch.exp(-self._log_age * exponent)
        return (drifted * (1.0 + self._reading_std(written) * draws.normal("read", target))).clamp_(min=0.0)

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read, for each target; one integral, over the error of writing."""
        written = (target[:, None] + self._writing_std(target)[:, None] * normal_points(_NUM_NORMALS)).clamp(min=0.0)
        kappa = self._reading_std(written).clamp(min=1e-12)
        below, density = torch.special.ndtr(1.0 / kappa), _normal_density(1.0 / kappa)
        first = (written * (below + kappa * density)).mean(dim=1)
        second = (written.square() * ((1.0 + kappa.square()) * below + kappa * density)).mean(dim=1)
        rate = self._log_age * self.drift
        return first * _folded(target, rate), second * _folded(target, 2.0 * rate)

    @property
    def _log_age(self) -> float:
        return math.log1p(self.seconds / FIRST_READING)

    def _writing_std(self, target: Tensor) -> Tensor:
        constant, slope, bend = PROGRAMMING
        return (constant + slope * target + bend * target.square()) * (self.programming / self.largest)

    def _reading_std(self, written: Tensor) -> Tensor:
        age = self.seconds + FIRST_READING
        growth = self.reading * math.sqrt(math.log((age + READ_TIME) / (2 * READ_TIME)))
        return (0.0088 / written.pow(0.65).clamp(min=1e-3)).clamp(max=0.2) * growth


@dataclass(frozen=True)
class ReRAM(Memory):
    """Resistive memory, read one second, one day or two days after it was written.

    Attributes:
        seconds: since writing: 1, 86400 or 172800.
        spread: scales the error; 0 is none, 1 as measured.
        compensate: multiply each tensor by one factor that restores its sum of absolute values.
        tile: inputs that share a tile; 0 puts a tensor on one.
        largest: the conductance in uS that the largest weight has.

    >>> ReRAM(seconds=1, spread=0.0).transmit({"w": torch.tensor([0.5, -1.0])}, seed=0).received["w"]
    tensor([ 0.5000, -1.0000])
    """

    seconds: float = 1.0
    spread: float = 1.0
    compensate: bool = False
    tile: int = 0

    largest: ClassVar[float] = 40.0

    def __post_init__(self) -> None:
        """Refuse times that were not measured."""
        if self.seconds not in tuple(SPREADS):  # a tuple, for the value may be anything
            times = ", ".join(f"{time:g}" for time in SPREADS)
            raise InvalidConfig(f"seconds is {self.seconds!r}; this memory was measured at {times} seconds only")
        check_number("spread", self.spread, 0, _LARGEST_FACTOR, note="; 0 is none, 1 is as measured")
        check_whole("tile", self.tile, 0, _WIDEST_TILE)

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
        below, density = torch.special.ndtr(target / std), _normal_density(target / std)
        first = target * below + std * density
        return first, (target.square() + std.square()) * below + target * std * density

    def _std(self, target: Tensor, seconds: float) -> Tensor:
        total = torch.zeros_like(target)
        for coefficient in reversed(SPREADS[seconds]):
            total = total * target + coefficient
        return total * (self.spread / self.largest)


def _drift_law(target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the exponent before its sign is dropped."""
    logarithm = target.clamp(min=_TINY).log()
    return (0.0244 - 0.0155 * logarithm).clamp(0.049, 0.1), (-0.0059 - 0.0125 * logarithm).clamp(0.008, 0.045)


def _folded(target: Tensor, rate: float) -> Tensor:
    """`E[exp(-rate |N|)]` of a normal `N` with the law of drift, summed in the exponent, where nothing overflows."""
    mean, std = _drift_law(target)
    growth = (rate * std).square() / 2
    right = growth - rate * mean + torch.special.log_ndtr(mean / std - rate * std)
    left = growth + rate * mean + torch.special.log_ndtr(-mean / std - rate * std)
    total: Tensor = right.exp() + left.exp()
    return total


def _normal_density(values: Tensor) -> Tensor:
    return torch.exp(-values.square() / 2) / math.sqrt(2 * math.pi)
