"""What a channel's error is like: its size, its part in line with the weights, the rest, and how Gaussian that is.

Any channel, deterministic or not, can be written as `r = gain (w + z) + offset` with a noise that is uncorrelated with
the weights (Bussgang 1952, for any distribution; docs/reference/channels.md tells what follows).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quietnn.errors import QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, mean_variance, noise_of_each
from quietnn.observation import Observation, of_tensor, undone
from quietnn.units import ratio_to_db
from quietnn.weights import Weights

PROBABILITIES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
HISTOGRAM_REACH = 6.0
NUM_BINS = 121

_NUM_KNOTS = 129
_NUM_POINTS = 40_001
_TAIL = 4.5
"""Outermost inner quantile, in standard deviations of a Gaussian."""

Conditional = tuple[Tensor, Tensor]
"""`E[r | w]` and `Var(r | w)` at some values of `w`."""


@dataclass(frozen=True)
class ErrorMoments:
    """First and second moments of weights `w` and what a channel made of them, `r`."""

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
    def told(self) -> tuple[float, float, float]:
        """What a receiver is told: noise variance, gain and offset."""
        return self.noise_variance, self.gain, self.offset

    @property
    def best_multiplier(self) -> float:
        """`Cov(w, r) / Var(r)`, the `theta` of the best linear estimate from the received `r`."""
        return self.covariance / self.received_variance if self.received_variance else 0.0


def weight_points(weights: Tensor, *, num_points: int = _NUM_POINTS) -> Tensor:
    """Equally likely values of the weights' distribution, told by 129 of its quantiles alone.

    Averages over them are integrals over the distribution. The quantiles are denser in the tails (even for a
    Gaussian) and joined by straight lines.

    >>> weight_points(torch.arange(101.0), num_points=5).round()
    tensor([10., 30., 50., 70., 90.], dtype=torch.float64)
    """
    ordered = weights.detach().double().flatten().sort().values.cpu().numpy()
    inner = torch.special.ndtr(torch.linspace(-_TAIL, _TAIL, _NUM_KNOTS, dtype=torch.float64)[1:-1]).numpy()
    places = np.concatenate([[0.0], inner, [1.0]])
    knots = np.interp(places, (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
    return torch.from_numpy(np.interp(_middles(num_points).numpy(), places, knots))


def normal_points(num_points: int = _NUM_POINTS) -> Tensor:
    """Equally likely values of `N(0, 1)`.

    >>> normal_points(3)
    tensor([-0.9674,  0.0000,  0.9674], dtype=torch.float64)
    """
    points: Tensor = torch.special.ndtri(_middles(num_points))
    return points


def _middles(num_points: int) -> Tensor:
    return (torch.arange(num_points, dtype=torch.float64) + 0.5) / num_points


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


@dataclass(frozen=True)
class ErrorShape:
    """An error beside a Gaussian of the same variance, in its standard deviations.

    Attributes:
        variance: of the error.
        excess_kurtosis: fourth moment over squared variance, minus 3; zero for a Gaussian.
        distance: Kolmogorov-Smirnov distance to the Gaussian of the same mean and variance.
        quantiles: at `PROBABILITIES`.
        histogram: share of errors in each of `NUM_BINS` even bins over +-`HISTOGRAM_REACH`.
    """

    variance: float
    excess_kurtosis: float
    distance: float
    quantiles: tuple[float, ...]
    histogram: tuple[float, ...]

    @classmethod
    def of(cls, errors: Tensor) -> "ErrorShape":
        """The shape of some errors, at least two different ones.

        >>> shape = ErrorShape.of(torch.tensor([-1.0, 1.0]))
        >>> shape.variance, shape.excess_kurtosis
        (1.0, -2.0)
        """
        values = errors.detach().double().flatten()
        variance = float(values.var(correction=0)) if values.numel() else 0.0
        if variance == 0:
            raise QuietnnError(f"{values.numel()} errors of variance 0 have no shape; use a channel that makes errors")
        standard = (values - values.mean()) / variance**0.5
        ordered = standard.sort().values
        normal = torch.special.ndtr(ordered)
        above = torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
        places = (torch.tensor(PROBABILITIES, dtype=torch.float64) * (len(ordered) - 1)).round().long()
        counts = torch.histc(standard, bins=NUM_BINS, min=-HISTOGRAM_REACH, max=HISTOGRAM_REACH)
        return cls(
            variance,
            float((standard**4).mean()) - 3.0,
            float(torch.maximum((above - normal).abs(), (normal - above + 1 / len(ordered)).abs()).max()),
            tuple(ordered[places].tolist()),
            tuple((counts / len(ordered)).tolist()),
        )


def errors_at_unit_gain(weights: Weights, observation: Observation[dict[str, Tensor], NoiseVariance]) -> Tensor:
    """All errors `z = (r - offset) / gain - w` of a model, in a row."""
    errors = []
    for name, tensor in weights.items():
        gain, offset = of_tensor(observation.gain, name), of_tensor(observation.offset, name)
        errors.append((undone(observation.received[name].double(), gain, offset) - tensor).flatten())
    return torch.cat(errors)


def told_variances(weights: Weights, observation: Observation[dict[str, Tensor], NoiseVariance]) -> Tensor:
    """The variance that the receiver was told for every one of them."""
    noise = noise_of_each(observation.noise_variance, weights)
    told = [torch.as_tensor(noise[name], dtype=torch.float64).expand(own.shape) for name, own in weights.items()]
    return torch.cat([own.flatten() for own in told])


def effective_wnr_db(weights: Weights, noise_variance: NoiseVariance) -> float:
    """The WNR of a model whose noise differs: `Var(w)` over the mean noise variance, in decibels.

    >>> effective_wnr_db({"w": torch.tensor([-1.0, 1.0])}, {"w": 0.1})
    10.0
    """
    mean = mean_variance(noise_variance, weights)
    return ratio_to_db(WeightStatistics.from_clean(weights.values()).variance / mean) if mean else math.inf
