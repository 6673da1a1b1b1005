"""The interface of every channel: weights in, noisy weights and their noise out; and checks of its settings."""

import math
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor
from typing_extensions import TypeVar

from quietnn.channels.randomness import check_seed
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance, TensorNoise
from quietnn.observation import Observation
from quietnn.units import db_to_ratio
from quietnn.weights import Weights, check_weights

Told = TypeVar("Told", covariant=True, default=NoiseVariance)

Arrived = tuple[Tensor, tuple[TensorNoise, float, float]]
"""What arrives of a tensor, and what is told of it: noise variance, gain and offset."""

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


class ByTensor(ABC):
    """A channel that treats every tensor by itself and tells noise variance, gain and offset of each."""

    by_tensor: ClassVar[bool] = True
    rounds: bool = False

    @abstractmethod
    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """What arrives of a tensor, and what is told of it."""

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """What arrives of the weights, with what the sender, who knows both, can tell of every tensor."""
        check_weights(weights)
        check_seed(seed)
        sent = {name: self.send(tensor, seed=seed, name=name) for name, tensor in weights.items()}
        noise: dict[str, TensorNoise] = {name: told[0] for name, (_, told) in sent.items()}
        gain, offset = ({name: told[place] for name, (_, told) in sent.items()} for place in (1, 2))
        received = {name: arrived for name, (arrived, _) in sent.items()}
        return Observation(received, noise, gain, offset, rounded=self.rounds)  # type: ignore[arg-type]


def settle(channel: Channel, weights: Weights) -> Channel:
    """The channel as it will treat these weights; itself, if there is nothing to settle.

    One that must know something of all tensors before it can send one (their power, the bits they cost) has a method
    `settled(weights)`, which returns a channel that then treats every tensor by itself. It looks at one tensor after
    the other, as seldom as it can: each look may be a reading from a file.
    """
    settled: Channel = channel.settled(weights) if hasattr(channel, "settled") else channel
    return settled


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
