"""The interface of every channel: weights in, noisy weights and their noise variance out."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights


class Channel(Protocol):
    """Anything that carries weights and adds noise of one variance on the way.

    >>> import torch, quietnn
    >>> class Halving:
    ...     def transmit(self, weights, *, seed):
    ...         return quietnn.Observation({name: one / 2 for name, one in weights.items()}, 0.0, gain=0.5)
    >>> quietnn.transmit(torch.tensor([2.0, 4.0]), channel=Halving(), seed=0).received
    tensor([1., 2.])
    """

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor]]:
        """Send these weights; the same seed gives the same noise. The weights stay as they are."""
        ...


@runtime_checkable
class Rated(Protocol):
    """A medium that takes more channel uses than one for each weight, or fewer."""

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        ...


class Medium(Protocol):
    """Anything that carries weights; its noise may differ from tensor to tensor or from weight to weight.

    Every `Channel` is one.
    """

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """Send these weights; the same seed gives the same noise. The weights stay as they are."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A medium that must know something of all tensors before it can send one: their power, the bits that they cost."""

    def settled(self, weights: Weights) -> Medium:
        """The medium with that settled, which then treats every tensor by itself.

        It looks at one tensor after the other, as seldom as it can: each look may be a reading from a file.
        """
        ...


def settle(medium: Medium, weights: Weights) -> Medium:
    """The medium as it will treat these weights; itself, if there is nothing to settle."""
    return medium.settled(weights) if isinstance(medium, Settling) else medium


def is_by_tensor(medium: Medium) -> bool:
    """Whether a medium treats every tensor by itself, so that sending them one by one comes to the same."""
    return bool(getattr(medium, "by_tensor", False))
