"""Over-the-air computation: the devices send at once, and the server receives the sum of what they sent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.channels.base import Channel
from quietnn.errors import InvalidConfig
from quietnn.federated.fading import Gains
from quietnn.federated.seeds import derive_seed
from quietnn.observation import Observation
from quietnn.weights import Weights


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

    The channel delivers `y = sum_m g_m u_m + z`. The server divides by the mean gain `g`, so that

        r = y / g = sum_m u_m + [ sum_m (g_m - g) u_m + z ] / g

    The bracket is uncorrelated with the sum, and its variance is what the observation reports:

        sigma_z,eff^2 = ( sigma_z^2 + Var(g_m) sum_m E[u_m^2] ) / g^2

    The powers `E[u_m^2]` are one number a device, sent along with its normalisation parameters; over the whole model,
    since a receiver of this family knows one noise variance. Without gains it is `sigma_z^2`.

    Attributes:
        channel: what happens to the sum, for example `AWGN(wnr_db=-10.0)`: the noise is set against the received sum.
        gains: pieces of `quietnn.federated.fading`; a device's gain is their product. None of them is the Gaussian
            multiple access channel.
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
