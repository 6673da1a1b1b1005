"""What a fading channel leaves of each device's signal: small pieces, each a random gain with known moments.

Device `m` wants the server to receive its update `u_m`; what arrives is `g_m u_m`. With perfect channel inversion
`g_m = 1` and the fading multiple access channel is the Gaussian one. Every piece here says what `g_m` is when something
is not perfect, and gives `E[g]` and `E[g^2]` in closed form, from which `quietnn.federated.air` derives the variance of
the noise that the gains amount to. The channel coefficient is Rayleigh with unit power, `h ~ CN(0, 1)`, constant over a
round (block fading) and independent between devices and rounds.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.federated.seeds import generator_for

MIN_MEAN_GAIN = 1e-6
"""Below this, dividing by the mean gain would turn one lucky device into an explosion."""


class Gains(Protocol):
    """A piece of the channel between the devices and the server."""

    @property
    def mean(self) -> float:
        """`E[g]`, the same for every device and every entry."""
        ...

    @property
    def second_moment(self) -> float:
        """`E[g^2]`."""
        ...

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> "float | Tensor":
        """The gain of a device in a round: one number, or one for each of its entries."""
        ...


@dataclass(frozen=True)
class PhaseAlignment:
    """No inversion: a device corrects the phase of its channel only, so `g = |h|`.

    `E[g] = sqrt(pi) / 2`, `E[g^2] = 1`.
    """

    mean: float = math.sqrt(math.pi) / 2.0
    second_moment: float = 1.0

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> float:
        """The amplitude of a Rayleigh channel."""
        real, imaginary = torch.randn(2, generator=generator_for(seed, "phase", device, round_number)).tolist()
        return math.hypot(real, imaginary) / math.sqrt(2.0)


@dataclass(frozen=True)
class ChannelInversion:
    """A device divides by what it believes its channel to be, unless that would take too much power.

    The device holds the MMSE estimate `k` of its coefficient: `h = k + e` with `e ~ CN(0, csi_error)` independent of
    `k ~ CN(0, 1 - csi_error)`. It sends `u / k` where that takes no more than the power cap, `1 / |k|^2 <= power_cap`,
    and is silent otherwise (truncated inversion). The server takes the real part:

        g = A (1 + Re(e / k)),     A = [|k|^2 >= 1 / power_cap],     x = 1 / (power_cap (1 - csi_error))
        E[g] = P(A) = exp(-x),     E[g^2] = exp(-x) (1 + csi_error / (2 (1 - csi_error)) exp(x) E_1(x))

    with the exponential integral `E_1`. Without a cap (`x = 0`) an imperfect inversion has infinite variance, since
    deep fades are divided by nearly zero: it is refused.

    Attributes:
        csi_error: variance of the error of the channel estimate, `0 <= csi_error < 1`; 0 is perfect knowledge.
        power_cap: largest power relative to what a channel with `|k| = 1` needs; infinite is no cap.

    >>> perfect = ChannelInversion()
    >>> perfect.mean, perfect.second_moment, perfect.draw(1, device=0, round_number=0, seed=0)
    (1.0, 1.0, 1.0)
    """

    csi_error: float = 0.0
    power_cap: float = math.inf

    def __post_init__(self) -> None:
        """Refuse what has no meaning or no variance."""
        if not 0 <= self.csi_error < 1:
            raise InvalidConfig(f"csi_error is {self.csi_error}; it is a share of the channel's power, from 0 up to 1")
        if not self.power_cap > 0:
            raise InvalidConfig(f"power_cap is {self.power_cap}; it must be above 0, or inf for no cap")
        if self.mean < MIN_MEAN_GAIN:
            raise InvalidConfig(
                f"with a power_cap of {self.power_cap} a device sends with probability {self.mean:.1g}; "
                "a federation needs more, raise the cap to 0.1 or above"
            )
        if self.csi_error and math.isinf(self.power_cap):
            raise InvalidConfig(
                f"inverting a channel known up to an error of {self.csi_error} gives noise of infinite variance; "
                "set a power_cap, for example 10"
            )

    @property
    def mean(self) -> float:
        """The probability that the device sends at all."""
        return math.exp(-self._threshold)

    @property
    def second_moment(self) -> float:
        """Larger than the mean by the error of the inversion."""
        if not self.csi_error:
            return self.mean
        return self.mean + self.csi_error / (2.0 * (1.0 - self.csi_error)) * exponential_integral(self._threshold)

    @property
    def _threshold(self) -> float:
        return 1.0 / (self.power_cap * (1.0 - self.csi_error))

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> float:
        """One gain for the whole round."""
        if not self.csi_error and math.isinf(self.power_cap):
            return 1.0
        draws = torch.randn(4, generator=generator_for(seed, "fading", device, round_number), dtype=torch.float64)
        known = complex(*draws[:2].tolist()) * math.sqrt((1.0 - self.csi_error) / 2.0)
        error = complex(*draws[2:].tolist()) * math.sqrt(self.csi_error / 2.0)
        if abs(known) ** 2 * self.power_cap < 1.0:
            return 0.0
        return 1.0 + (error / known).real


@dataclass(frozen=True)
class Dropout:
    """With this probability a device vanishes in the middle of its transmission.

    The entries are sent in a cycle that starts at a random place, which all devices of the round share, so that no
    layer is always last. The place where a device vanishes is uniform over the cycle; what follows does not arrive:

        E[g] = E[g^2] = 1 - probability / 2

    >>> Dropout(0.5).mean
    0.75
    """

    probability: float

    def __post_init__(self) -> None:
        """Refuse what is not a probability."""
        if not 0 <= self.probability <= 1:
            raise InvalidConfig(f"the probability of dropping out is {self.probability}; it lies between 0 and 1")

    @property
    def mean(self) -> float:
        """The probability that an entry arrives."""
        return 1.0 - self.probability / 2.0

    @property
    def second_moment(self) -> float:
        """The same, since a gain is 0 or 1."""
        return self.mean

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> "float | Tensor":
        """One for what arrives, zero for what does not."""
        generator = generator_for(seed, "dropout", device, round_number)
        if float(torch.rand((), generator=generator)) >= self.probability:
            return 1.0
        num_sent = int(torch.randint(num_entries + 1, (), generator=generator))
        start = int(torch.randint(num_entries, (), generator=generator_for(seed, "cycle", round_number)))
        arrived = torch.zeros(num_entries)
        arrived[:num_sent] = 1.0
        return arrived.roll(start)


def exponential_integral(x: float) -> float:
    """`E_1(x)`, the integral of `exp(-t) / t` from `x > 0` to infinity: series below 1, continued fraction above.

    >>> round(exponential_integral(1.0), 10)
    0.2193839344
    """
    if x < 1.0:
        total, term = -0.5772156649015329 - math.log(x), 1.0
        for k in range(1, 25):
            term *= -x / k
            total -= term / k
        return total
    fraction = 0.0
    for k in range(200, 0, -1):
        fraction = k / (1.0 + k / (x + fraction))
    return math.exp(-x) / (x + fraction)
