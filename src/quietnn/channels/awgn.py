"""Additive white Gaussian noise of one variance for the whole model."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from quietnn.channels.randomness import BLOCK, check_seed, standard_normal
from quietnn.errors import QuietnnError, unknown_choice
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation
from quietnn.theory.family import check_variance, noise_variance_of
from quietnn.units import db_to_ratio
from quietnn.weights import Weights, check_weights, checked


class Power(StrEnum):
    """What the weight-to-noise ratio measures the weights by: their variance, or their second moment."""

    VARIANCE = "variance"
    SECOND_MOMENT = "second-moment"

    @classmethod
    def _missing_(cls, value: object) -> "Power":
        raise unknown_choice("power", value, cls)


@dataclass(frozen=True)
class AWGN:
    """The channel `r = w + z`, `z ~ N(0, sigma_z^2)` independent for every weight (eq. 2).

    Give the noise either as a variance or as a weight-to-noise ratio `eta = sigma_w^2 / sigma_z^2` in decibels,
    taken over all the weights that are sent together. A WNR of +inf dB is a channel without noise.

    Attributes:
        wnr_db: `10 log10(eta)`.
        noise_variance: `sigma_z^2`.
        power: what `wnr_db` is relative to: the weights' variance, or their second moment.

    >>> AWGN(noise_variance=0.0).transmit({"w": torch.ones(2)}, seed=0)
    Observation(received={'w': tensor([1., 1.])}, noise_variance=0.0)
    """

    wnr_db: float | None = None
    noise_variance: float | None = None
    power: Power | str = Power.VARIANCE

    def __post_init__(self) -> None:
        """Check the arguments, so that a channel that exists can be used."""
        if (self.wnr_db is None) == (self.noise_variance is None):
            raise QuietnnError(
                f"AWGN got wnr_db={self.wnr_db} and noise_variance={self.noise_variance}; give exactly one, "
                "for example AWGN(wnr_db=10.0)"
            )
        if self.noise_variance is not None:
            check_variance(self.noise_variance, "noise_variance")
        if self.wnr_db is not None:
            db_to_ratio(self.wnr_db)
        Power(self.power)

    @property
    def by_tensor(self) -> bool:
        """Whether every tensor can be sent by itself: once the variance is known."""
        return self.noise_variance is not None

    def settled(self, weights: Weights) -> "AWGN":
        """The same noise by its variance, which a ratio takes from all weights."""
        return self if self.by_tensor else AWGN(noise_variance=self.variance_for(weights))

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor]]:
        """Add noise to a copy of the weights, drawn by seed, tensor name and block."""
        check_weights(weights)
        check_seed(seed)
        variance = self.variance_for(weights)
        std = variance**0.5
        received = {name: add_noise(tensor, std, seed=seed, name=name) for name, tensor in weights.items()}
        return Observation(received, variance, rounded=False)

    def variance_for(self, weights: Weights) -> float:
        """The `sigma_z^2` these weights will meet."""
        if self.noise_variance is not None:
            return self.noise_variance
        if not weights:
            raise QuietnnError("no weights to measure the noise against; send at least one tensor")
        return self.variance_at(WeightStatistics.from_clean(tensor for _, tensor in checked(weights)))

    def variance_at(self, statistics: WeightStatistics) -> float:
        """The `sigma_z^2` that weights with these statistics will meet."""
        if self.noise_variance is not None:
            return self.noise_variance
        assert self.wnr_db is not None
        power = statistics.variance if self.power == Power.VARIANCE else statistics.second_moment
        return noise_variance_of(self.wnr_db, power)


def add_noise(tensor: Tensor, std: float, *, seed: int, name: str) -> Tensor:
    """A copy of a tensor with Gaussian noise on it."""
    received = tensor.detach().clone(memory_format=torch.contiguous_format)
    add_noise_in_place(received.view(-1), std, seed=seed, name=name)
    return received


def add_noise_in_place(stretch: Tensor, std: float, *, seed: int, name: str, start: int = 0) -> None:
    """Add noise to a flat stretch of a tensor; 16-bit values are summed in float32 and rounded once.

    The stretch starts at a multiple of the noise's block in the tensor.
    """
    if std == 0:
        return
    exact = torch.promote_types(stretch.dtype, torch.float32)
    for offset in range(0, stretch.numel(), BLOCK):  # one block at a time stays in the processor's cache
        piece = stretch[offset : offset + BLOCK]
        noise = standard_normal(piece.numel(), seed=seed, name=name, start=start + offset)
        wide = piece.to(exact)  # the piece itself unless it is narrower
        wide.add_(noise.to(piece.device, exact), alpha=std)
        if wide is not piece:
            piece.copy_(wide)
