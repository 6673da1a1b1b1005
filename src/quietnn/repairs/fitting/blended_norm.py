"""BatchNorm statistics between those that were sent and those of a batch, weighed by their own errors.

The stored statistics are exact for the clean weights; the batch knows the present ones but is small. For the means of
a layer's channels, `V` being the mean sampling variance of the batch means (from the spread between examples) and `T`
the mean squared distance between batch and stored means, both in stored standard deviations,

    mean = stored + g (batch - stored)        g = max(0, 1 - V / T)

is the empirical-Bayes estimate: what the sampling error explains is not followed. The logarithms of the variances are
treated likewise, their common part apart from the differences between channels. Gradients flow through the batch's
statistics, so steps are taken on the network as it will be used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_TINY = 1e-12


@dataclass(frozen=True)
class ExampleMoments:
    """The moments of every example in every channel, of one batch or of several.

    Attributes:
        means: (examples, channels).
        mean: their average, (channels,).
        squares: (examples, channels), mean squared distance from `mean`.
    """

    means: Tensor
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, inputs: Tensor) -> "ExampleMoments":
        """Those of a batch, (examples, channels, ...)."""
        inputs = inputs if inputs.dtype == torch.float64 else inputs.float()
        values = inputs.flatten(2) if inputs.dim() > 2 else inputs[:, :, None]
        means = values.mean(2)
        mean = means.mean(0)
        return cls(means, mean, (values - mean[:, None]).square().mean(2))

    @classmethod
    def pooled(cls, parts: Sequence["ExampleMoments"]) -> "ExampleMoments":
        """Those of several batches together, every example counting once.

        About another centre `c` the squares grow to `squares + 2 (means - mean)(mean - c) + (mean - c)^2`.

        >>> inputs = torch.arange(12.0).view(4, 3)
        >>> pooled = ExampleMoments.pooled([ExampleMoments.of(inputs[:1]), ExampleMoments.of(inputs[1:])])
        >>> torch.allclose(pooled.squares, ExampleMoments.of(inputs).squares)
        True
        """
        if len(parts) == 1:
            return parts[0]
        means = torch.cat([part.means for part in parts])
        mean = means.mean(0)
        away = [part.mean - mean for part in parts]
        squares = [
            part.squares + 2 * (part.means - part.mean) * shift + shift.square()
            for part, shift in zip(parts, away, strict=True)
        ]
        return cls(means, mean, torch.cat(squares))

    def detach(self) -> "ExampleMoments":
        """The same without their history."""
        return ExampleMoments(self.means.detach(), self.mean.detach(), self.squares.detach())


def blend(moments: ExampleMoments, stored: tuple[Tensor, Tensor], epsilon: float) -> tuple[Tensor, Tensor]:
    """Mean and variance to use: as stored, moved towards those of the examples by what is more than their error.

    Args:
        moments: of two examples or more.
        stored: the running mean and variance.
        epsilon: what the layer adds to the variance.
    """
    num_examples = len(moments.means)
    mean, variance = moments.mean, moments.squares.mean(0) + epsilon
    stored_mean, stored_variance = stored[0].to(mean), stored[1].to(mean) + epsilon
    change = torch.log(variance) - torch.log(stored_variance)
    common = change.mean()
    with torch.no_grad():
        mean_error = (moments.means.var(0) / num_examples / stored_variance).mean()
        mean_gain = _gain((mean - stored_mean).square().div(stored_variance).mean(), mean_error)
        error = (moments.squares.var(0) / num_examples / variance.square()).mean()
        gain = _gain((change - common).square().mean(), error)
        common_gain = _gain(common.square(), error / len(change))
    log_variance = torch.log(stored_variance) + common_gain * common + gain * (change - common)
    return torch.lerp(stored_mean, mean, mean_gain), (log_variance.exp() - epsilon).clamp_min(0)


def _gain(distance: Tensor, error: Tensor) -> Tensor:
    """How much of a squared distance is not explained by the sampling error."""
    return (1.0 - error / (distance + _TINY)).clamp(min=0.0)
