"""What the updates meet on the air: a random gain for each device, their sum, and a channel's noise on it.

docs/how-it-works/noisy-training.md derives the moments of each piece. The channel coefficient is Rayleigh with unit
power, `h ~ CN(0, 1)`, constant over a round (block fading) and independent between devices and rounds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.channels.base import Channel
from quietnn.channels.randomness import derive_seed, generator_for
from quietnn.errors import InvalidConfig
from quietnn.observation import Observation
from quietnn.weights import Weights

MIN_MEAN_GAIN = 1e-6
"""Below this, dividing by the mean gain would turn one lucky device into an explosion."""


@dataclass(frozen=True)
class PhaseAlignment:
    """No inversion: a device corrects the phase of its channel only, so `g = |h|`."""

    mean: float = math.sqrt(math.pi) / 2.0
    second_moment: float = 1.0

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> float:
        """The amplitude of a Rayleigh channel."""
        real, imaginary = torch.randn(2, generator=generator_for(seed, "phase", device, round_number)).tolist()
        return math.hypot(real, imaginary) / math.sqrt(2.0)


@dataclass(frozen=True)
class ChannelInversion:
    """A device divides by what it believes its channel to be, unless that would take too much power.

    It holds the MMSE estimate `k` of its coefficient, `h = k + e`, and sends `u / k` or nothing. Without a cap an
    imperfect inversion has infinite variance, since deep fades are divided by nearly zero.

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
    layer is always last. The place where a device vanishes is uniform over the cycle; what follows does not arrive.

    >>> Dropout(0.5).mean
    0.75
    """

    probability: float

    def __post_init__(self) -> None:
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

    def draw(self, num_entries: int, *, device: int, round_number: int, seed: int) -> float | Tensor:
        """One for what arrives, zero for what does not."""
        generator = generator_for(seed, "dropout", device, round_number)
        if float(torch.rand((), generator=generator)) >= self.probability:
            return 1.0
        num_sent = int(torch.randint(num_entries + 1, (), generator=generator))
        start = int(torch.randint(num_entries, (), generator=generator_for(seed, "cycle", round_number)))
        arrived = torch.zeros(num_entries)
        arrived[:num_sent] = 1.0
        return arrived.roll(start)


Gains = PhaseAlignment | ChannelInversion | Dropout
"""A piece of the channel between the devices and the server; `draw` gives one number, or one for each entry."""


def superpose(updates: Mapping[int, Weights]) -> dict[str, Tensor]:
    """The sum of the devices' tensors, taken in the order of their numbers so that it is always the same float.

    >>> superpose({1: {"w": torch.tensor([1.0, 2.0])}, 0: {"w": torch.tensor([10.0, 20.0])}})
    {'w': tensor([11., 22.])}
    """
    if not updates:
        raise InvalidConfig("no device sent an update; a round needs at least one")
    devices = sorted(updates)
    total = {name: tensor.clone() for name, tensor in updates[devices[0]].items()}
    for device in devices[1:]:
        for name, tensor in total.items():
            tensor += updates[device][name]
    return total


@dataclass(frozen=True)
class Air:
    """The channel of a round: gains on each device's signal, then any channel on the sum.

    The server divides by the mean gain. What is wrong with the result is uncorrelated with the sum, and the observation
    reports its variance. The powers `E[u_m^2]` that it takes are one number a device, sent along with its normalisation
    parameters; over the whole model, since a receiver of this family knows one noise variance.

    Attributes:
        channel: what happens to the sum, for example `AWGN(wnr_db=-10.0)`: the noise is set against the received sum.
        gains: a device's gain is their product. None of them is the Gaussian multiple access channel.
    """

    channel: Channel[float]
    gains: tuple[Gains, ...] = ()

    @property
    def mean_gain(self) -> float:
        """`E[g]` of all pieces together."""
        return math.prod(piece.mean for piece in self.gains)

    @property
    def gain_variance(self) -> float:
        """`Var(g)` of all pieces together, which are independent."""
        return max(math.prod(piece.second_moment for piece in self.gains) - self.mean_gain**2, 0.0)

    def receive(
        self, updates: Mapping[int, Weights], *, round_number: int, seed: int
    ) -> Observation[dict[str, Tensor]]:
        """The sum of the updates as the server receives it, and the variance of all that is wrong with it."""
        faded = {device: self._fade(device, update, round_number, seed) for device, update in updates.items()}
        observation = self.channel.transmit(superpose(faded), seed=derive_seed(seed, "noise", round_number))
        if not self.gains:
            return observation
        mean = self.mean_gain
        power = sum(_mean_square(update) for update in updates.values())
        variance = (observation.noise_variance + self.gain_variance * power) / mean**2
        return Observation({name: tensor / mean for name, tensor in observation.received.items()}, variance)

    def _fade(self, device: int, update: Weights, round_number: int, seed: int) -> Weights:
        num_entries = sum(tensor.numel() for tensor in update.values())
        for piece in self.gains:
            gain = piece.draw(num_entries, device=device, round_number=round_number, seed=seed)
            if isinstance(gain, Tensor):
                sizes = [tensor.numel() for tensor in update.values()]
                parts = zip(update.items(), torch.split(gain, sizes), strict=True)
                update = {name: tensor * part.view(tensor.shape) for (name, tensor), part in parts}
            else:
                update = {name: tensor * gain for name, tensor in update.items()}
        return update


def _mean_square(update: Weights) -> float:
    num_entries = sum(tensor.numel() for tensor in update.values())
    return sum(float(torch.sum(tensor.double() ** 2)) for tensor in update.values()) / num_entries


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
