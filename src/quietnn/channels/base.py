"""The interface of every channel: weights in, noisy weights and their noise variance out."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from quietnn.weights import Weights

Received = TypeVar("Received", covariant=True)


@dataclass(frozen=True)
class Observation(Generic[Received]):
    """What a receiver holds: `r = w + z` and the variance of `z` (eq. 2).

    Attributes:
        received: the noisy weights, of the kind that was sent (a dict of tensors, a module).
        noise_variance: `sigma_z^2`, one for the whole model.
    """

    received: Received
    noise_variance: float


class Channel(Protocol):
    """Anything that carries weights and adds noise on the way."""

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor]]:
        """Send these weights; the same seed gives the same noise. The weights stay as they are."""
        ...
