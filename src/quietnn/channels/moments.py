"""What a channel's error is like to second order: its size, its part in line with the weights, and the rest.

Any channel, deterministic or not, can be written as a gain and a noise that is uncorrelated with the weights
(Bussgang's decomposition, "Crosscorrelation functions of amplitude-distorted Gaussian signals", MIT, 1952, for any
distribution):

    r = gain (w + z) + offset
    gain = Cov(w, r) / Var(w)       offset = E[r] - gain E[w]       sigma_z^2 = Var(r) / gain^2 - Var(w)

`(r - offset) / gain` is then the paper's `w + z` in all first and second moments. Whatever rests on those alone holds
for it: MMSE with this `sigma_z^2` is the best linear estimate, and `Var(r / gain) - sigma_z^2` is the clean variance.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quietnn.errors import QuietnnError

_NUM_KNOTS = 129
_NUM_POINTS = 40_001
_TAIL = 4.5
"""Outermost inner quantile, in standard deviations of a Gaussian."""

Conditional = tuple[Tensor, Tensor]
"""`E[r | w]` and `Var(r | w)` at some values of `w`."""


@dataclass(frozen=True)
class ErrorMoments:
    """First and second moments of weights `w` and what a channel made of them, `r`.

    Attributes:
        num_weights: how many weights they were taken over.
        weight_mean: `E[w]`.
        weight_variance: `Var(w)`.
        received_mean: `E[r]`.
        received_variance: `Var(r)`.
        covariance: `Cov(w, r)`.
    """

    num_weights: int
    weight_mean: float
    weight_variance: float
    received_mean: float
    received_variance: float
    covariance: float

    @classmethod
    def of(cls, weights: Tensor, received: Tensor) -> "ErrorMoments":
        """What was measured: the moments of pairs of weights and received weights.

        >>> moments = ErrorMoments.of(torch.tensor([-1.0, 1.0]), torch.tensor([-0.5, 0.5]))
        >>> moments.gain, moments.noise_variance, moments.mean_squared_error
        (0.5, 0.0, 0.25)
        """
        return cls.predicted(weights, (received, torch.zeros(1)))

    @classmethod
    def predicted(cls, weights: Tensor, conditional: Conditional) -> "ErrorMoments":
        """What is to be expected: the channel's `E[r | w]` and `Var(r | w)`, integrated over values of `w`.

        `Var(r) = E[Var(r | w)] + Var(E[r | w])` and `Cov(w, r) = Cov(w, E[r | w])`.
        """
        clean, mean, variance = (part.detach().double().flatten() for part in (weights, *conditional))
        centred, response = clean - clean.mean(), mean - mean.mean()
        return cls(
            clean.numel(),
            float(clean.mean()),
            float(centred.square().mean()),
            float(mean.mean()),
            float(variance.mean() + response.square().mean()),
            float((centred * response).mean()),
        )

    @property
    def mean_error(self) -> float:
        """`E[r - w]`."""
        return self.received_mean - self.weight_mean

    @property
    def mean_squared_error(self) -> float:
        """`E[(r - w)^2]`."""
        return self.error_variance + self.mean_error**2

    @property
    def error_variance(self) -> float:
        """`Var(r - w)`."""
        return max(self.received_variance + self.weight_variance - 2 * self.covariance, 0.0)

    @property
    def correlation(self) -> float:
        """The correlation of the error `r - w` with `w`; zero for additive noise, negative where weights shrink."""
        scale = math.sqrt(self.error_variance * self.weight_variance)
        return (self.covariance - self.weight_variance) / scale if scale else 0.0

    @property
    def gain(self) -> float:
        """`Cov(w, r) / Var(w)`; 1 where the weights, or the received ones, are all the same."""
        return self.covariance / self.weight_variance if self.covariance > 0 and self.weight_variance > 0 else 1.0

    @property
    def offset(self) -> float:
        """`E[r] - gain E[w]`, what is left of the mean error once the gain is undone."""
        return self.received_mean - self.gain * self.weight_mean

    @property
    def noise_variance(self) -> float:
        """`sigma_z^2` of `r = gain (w + z) + offset`, the number that denoisers should use at unit gain."""
        if self.covariance <= 0:
            return self.error_variance  # nothing of the weights arrived
        return max(self.received_variance / self.gain**2 - self.weight_variance, 0.0)

    @property
    def best_multiplier(self) -> float:
        """`Cov(w, r) / Var(r)`, the `theta` of the best linear estimate from `r` as it came."""
        return self.covariance / self.received_variance if self.received_variance else 0.0


def weight_points(weights: Tensor, *, num_knots: int = _NUM_KNOTS, num_points: int = _NUM_POINTS) -> Tensor:
    """Equally likely values of the weights' distribution, told by some of its quantiles alone.

    Averages over them are integrals over the distribution: `num_knots` quantiles, denser in the tails (even for
    a Gaussian), joined by straight lines.

    >>> weight_points(torch.arange(101.0), num_knots=3, num_points=4)
    tensor([12.5000, 37.5000, 62.5000, 87.5000], dtype=torch.float64)
    """
    ordered = weights.detach().double().flatten().sort().values.cpu().numpy()
    inner = torch.special.ndtr(torch.linspace(-_TAIL, _TAIL, num_knots, dtype=torch.float64)[1:-1]).numpy()
    places = np.concatenate([[0.0], inner, [1.0]])
    knots = np.interp(places, (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
    return torch.from_numpy(np.interp(_middles(num_points).numpy(), places, knots))


def gaussian_points(mean: float, variance: float, *, num_points: int = _NUM_POINTS) -> Tensor:
    """Equally likely values of `N(mean, variance)`.

    >>> gaussian_points(1.0, 4.0, num_points=3)
    tensor([-0.9348,  1.0000,  2.9348], dtype=torch.float64)
    """
    standard: Tensor = torch.special.ndtri(_middles(num_points))
    return mean + math.sqrt(variance) * standard


def pooled(moments: Iterable[ErrorMoments]) -> ErrorMoments:
    """The moments of several tensors taken together."""
    parts = list(moments)
    count = sum(part.num_weights for part in parts)
    if not count:
        raise QuietnnError("there are no weights to pool; give at least one tensor's moments")

    def mean(value: Callable[[ErrorMoments], float]) -> float:
        return math.fsum(value(part) * part.num_weights for part in parts) / count

    clean, received = mean(lambda part: part.weight_mean), mean(lambda part: part.received_mean)
    return ErrorMoments(
        count,
        clean,
        mean(lambda part: part.weight_variance + (part.weight_mean - clean) ** 2),
        received,
        mean(lambda part: part.received_variance + (part.received_mean - received) ** 2),
        mean(lambda part: part.covariance + (part.weight_mean - clean) * (part.received_mean - received)),
    )


def _middles(num_points: int) -> Tensor:
    return (torch.arange(num_points, dtype=torch.float64) + 0.5) / num_points
