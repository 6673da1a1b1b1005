"""The interface of every channel: weights in, noisy weights and their noise variance out; and checks of its settings.

Each message about a setting names it, its value and its limits.
"""

import math
from numbers import Integral, Real
from typing import Protocol, runtime_checkable

from torch import Tensor
from typing_extensions import TypeVar

from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights

Told = TypeVar("Told", covariant=True, default=NoiseVariance)

LOWEST_LINK_DB = -100.0
"""Below it a link carries nothing, and its noise variances come near the end of the floats."""


class Channel(Protocol[Told]):
    """Anything that carries weights; its noise may differ from tensor to tensor or from weight to weight.

    A `Channel[float]` adds noise of one variance to all of them.

    >>> import torch, quietnn
    >>> class Halving:
    ...     def transmit(self, weights, *, seed):
    ...         return quietnn.Observation({name: one / 2 for name, one in weights.items()}, 0.0, gain=0.5)
    >>> quietnn.transmit(torch.tensor([2.0, 4.0]), channel=Halving(), seed=0).received
    tensor([1., 2.])
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


def check_number(name: str, value: object, low: float, high: float, *, note: str = "") -> None:
    """Refuse what is no number from `low` to `high`."""
    if not (isinstance(value, Real) and low <= float(value) <= high):
        raise InvalidConfig(f"{name} is {value!r}; give {low:g} to {high:g}{note}")


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number from `low` to `high`."""
    if not (isinstance(value, Integral) and low <= int(value) <= high):
        raise InvalidConfig(f"{name} is {value!r}; give a whole number, {low} to {high}")


def check_link_db(value: object) -> None:
    """Refuse a link's signal-to-noise ratio that is none, or too low for anything to arrive."""
    if not isinstance(value, Real):
        raise InvalidConfig(f"wnr_db is {value!r}; give a number of decibels, for example 10.0")
    if float(value) < LOWEST_LINK_DB and float(value) != -math.inf:
        raise InvalidConfig(f"wnr_db is {value}; nothing arrives at so low a ratio, give {LOWEST_LINK_DB:g} or more")
    db_to_ratio(float(value))
