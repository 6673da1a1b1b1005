"""Phase-change memory: written with an error, drifting, read with noise that grows with time.

After Nandakumar et al., "Phase-change memory models for deep learning training and inference" (ICECS 2019), and Joshi
et al., "Accurate deep neural network inference using computational phase-change memory" (Nature Communications, 2020);
the numbers are those of the open model that goes with them (aihwkit, Rasch et al., AICAS 2021). `x` is the conductance
over `g_max = 25 uS`, `t` the time since writing, `t_0 = 20 s` that of the first reading, `t_r = 250 ns` that of a read:

    written   x_0 = max(x + sigma(x) n, 0)              sigma(x) = (0.26348 + 1.9650 x - 1.1731 x^2) / 25
    drift     x_t = x_0 (t / t_0)^-nu                   nu = |mu(x) + s(x) n|
              mu(x) = clip(0.0244 - 0.0155 ln x, 0.049, 0.1)        s(x) = clip(-0.0059 - 0.0125 ln x, 0.008, 0.045)
    read      max(x_t (1 + kappa n), 0)                 kappa = q(x_0) sqrt(ln((t + t_r) / (2 t_r)))
              q(x) = min(0.0088 / max(x^0.65, 0.001), 0.2)

where every `n` is a standard normal of its own. Not modelled: that one read follows another on the same devices,
temperature, the digital-analog and analog-digital converters, and voltage drops in the array.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from quietnn.channels.conductance import LARGEST_FACTOR, Draws, shared_noise, transmit_through
from quietnn.channels.moments import gaussian_points
from quietnn.channels.settings import check_number
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights

G_MAX = 25.0
FIRST_READING = 20.0
READ_TIME = 250e-9
PROGRAMMING = (0.26348, 1.9650, -1.1731)

_TINY = 1e-7
_LONGEST = 1e12
"""Seconds, 30,000 years: far past any measurement."""
_NUM_NORMALS = 301


@dataclass(frozen=True)
class PCM:
    """Phase-change memory, read some time after it was written.

    Attributes:
        seconds: since the first reading, 20 s after writing.
        compensate: global drift compensation, one factor for each tensor.
        programming: scales the error of writing; 0 is none, 1 as measured.
        reading: scales the noise of reading.
        drift: scales the exponents of drift.

    >>> silent = PCM(seconds=0.0, programming=0.0, reading=0.0)
    >>> silent.transmit({"w": torch.tensor([0.5, -1.0])}, seed=0).received["w"]
    tensor([ 0.5000, -1.0000])
    """

    seconds: float
    compensate: bool = True
    programming: float = 1.0
    reading: float = 1.0
    drift: float = 1.0

    by_tensor: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse times and scales below zero."""
        limits = {
            "seconds": _LONGEST,
            "programming": LARGEST_FACTOR,
            "reading": LARGEST_FACTOR,
            "drift": LARGEST_FACTOR,
        }
        for name, limit in limits.items():
            check_number(name, getattr(self, name), 0, limit)

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What is read of the weights, with gain and noise as the model predicts them for each tensor."""
        return transmit_through(self, weights, seed=seed, compensate=self.compensate)

    def shared_noise(self, tensor: Tensor) -> float:
        """The part of the noise variance that is the same whenever a tensor is written."""
        return shared_noise(self, tensor)

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        """The conductances just after writing, relative to the largest."""
        return (target + self._writing_std(target) * draws.normal("write", target)).clamp_(min=0.0)

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        """The conductances when they are read: drifted, with noise."""
        mean, std = _drift_law(target)
        exponent = (mean + std * draws.normal("drift", target)).abs() * self.drift
        drifted = written * torch.exp(-self._log_age * exponent)
        return (drifted * (1.0 + self._reading_std(written) * draws.normal("read", target))).clamp_(min=0.0)

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read, for each target; one integral, over the error of writing."""
        normals = gaussian_points(0.0, 1.0, num_points=_NUM_NORMALS)
        written = (target[:, None] + self._writing_std(target)[:, None] * normals).clamp(min=0.0)
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
        return (constant + slope * target + bend * target.square()) * (self.programming / G_MAX)

    def _reading_std(self, written: Tensor) -> Tensor:
        age = self.seconds + FIRST_READING
        growth = self.reading * math.sqrt(math.log((age + READ_TIME) / (2 * READ_TIME)))
        return (0.0088 / written.pow(0.65).clamp(min=1e-3)).clamp(max=0.2) * growth


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
