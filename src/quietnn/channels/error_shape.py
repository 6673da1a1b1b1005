"""How Gaussian a channel's error is: kurtosis, distance, quantiles, a histogram."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import QuietnnError
from quietnn.noise import NoiseVariance, noise_by_tensor, one_variance
from quietnn.observation import Observation, of_tensor, undone
from quietnn.weights import Weights

PROBABILITIES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
HISTOGRAM_REACH = 6.0
NUM_BINS = 121


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
    gain, offset = observation.gain, observation.offset
    return torch.cat(
        [
            (
                undone(observation.received[name].double(), of_tensor(gain, name), of_tensor(offset, name)) - tensor
            ).flatten()
            for name, tensor in weights.items()
        ]
    )


def told_variances(weights: Weights, observation: Observation[dict[str, Tensor], NoiseVariance]) -> Tensor:
    """The variance that the receiver was told for every one of them."""
    noise = noise_by_tensor(observation.noise_variance, weights)
    if noise is None:
        noise = dict.fromkeys(weights, one_variance(observation.noise_variance))
    return torch.cat(
        [
            torch.as_tensor(noise[name], dtype=torch.float64).expand(tensor.shape).flatten()
            for name, tensor in weights.items()
        ]
    )
