"""The interface of every channel: weights in, noisy weights and their noise variance out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import TypeVar

from quietnn.noise import NoiseVariance
from quietnn.weights import Weights

Received = TypeVar("Received", covariant=True)
Noise = TypeVar("Noise", covariant=True, default=float)
Told = TypeVar("Told", covariant=True, default=NoiseVariance)

Gain = float | Mapping[str, float]
"""By how much a channel multiplies the weights: one number, or by tensor name."""

Offset = float | Mapping[str, float]
"""What a channel adds to all weights alike: one number, or by tensor name."""


@dataclass(frozen=True)
class Observation(Generic[Received, Noise]):
    """What a receiver holds: `r = w + z` and the variance of `z` (eq. 2).

    A channel may also multiply and shift: `r = gain (w + z) + offset` with `z` of mean zero and uncorrelated with `w`,
    which `at_unit_gain` undoes.

    Attributes:
        received: the noisy weights, of the kind that was sent (a dict of tensors, a module).
        noise_variance: `sigma_z^2`, one for the whole model, or by tensor name, each a number or a tensor.
        gain: what the weights were multiplied by; 1 for additive noise.
        offset: what was added to all weights of a tensor alike; 0 for noise of mean zero.
    """

    received: Received
    noise_variance: Noise
    gain: Gain = field(default=1.0, repr=False)
    offset: Offset = field(default=0.0, repr=False)


class Channel(Protocol[Told]):
    """Anything that carries weights; its noise may differ from tensor to tensor or from weight to weight.

    A `Channel[float]` adds noise of one variance to all of them.
    """

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], Told]:
        """Send these weights; the same seed gives the same noise. The weights stay as they are."""
        ...


@runtime_checkable
class Rated(Protocol):
    """A channel that takes more channel uses than one for each weight, or fewer."""

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A channel that must know something of all tensors before it can send one: their power, the bits they cost."""

    def settled(self, weights: Weights) -> Channel:
        """The channel with that settled, which then treats every tensor by itself.

        It looks at one tensor after the other, as seldom as it can: each look may be a reading from a file.
        """
        ...


def settle(channel: Channel, weights: Weights) -> Channel:
    """The channel as it will treat these weights; itself, if there is nothing to settle."""
    return channel.settled(weights) if isinstance(channel, Settling) else channel


def is_by_tensor(channel: Channel) -> bool:
    """Whether a channel treats every tensor by itself, so that sending them one by one comes to the same."""
    return bool(getattr(channel, "by_tensor", False))


def of_tensor(value: Gain | Offset, name: str) -> float:
    """The gain or offset of one tensor.

    >>> of_tensor(2.0, "w"), of_tensor({"w": 3.0}, "w")
    (2.0, 3.0)
    """
    return value[name] if isinstance(value, Mapping) else value


def undone(received: Tensor, gain: float, offset: float) -> Tensor:
    """`(r - offset) / gain = w + z` of one tensor; 16-bit tensors are computed in float32 and rounded once.

    >>> undone(torch.tensor([1.0, 2.0]), gain=0.5, offset=1.0)
    tensor([0., 2.])
    """
    if offset == 0.0:
        return received / gain
    exact = torch.promote_types(received.dtype, torch.float32)
    return ((received.to(exact) - offset) / gain).to(received.dtype)
