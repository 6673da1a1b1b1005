"""BatchNorm statistics that follow the weights of a network, told from some examples (docs/how-it-works/posterior.md).

*Blended*, they lie between those that were sent and those of a batch. With `V` the mean sampling variance of the batch
means of a layer and `T` the mean squared distance between batch and stored means, both in stored standard deviations,

    mean = stored + g (batch - stored)        g = max(0, 1 - V / T)

The logarithms of the variances are treated likewise, their common part apart from the differences between channels.

*Anchored*, they start where a calibration put them, `m, v`, while the examples show other moments there, `m0` and `v0`.
That difference is kept, in standard deviations of each channel, while the weights move:

    mean = m' + sqrt(V') (m - m0) / sqrt(V0)        V = V' (v + epsilon) / V0        V' = v' + epsilon

for the moments `m', v'` of the examples at the weights as they are. At the start these are its own statistics to
the last digits, and a channel that is made larger or smaller changes nothing, as for any BatchNorm on its own batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.random_effects import beyond_error
from quietnn.watching.batch_moments import wide

_TINY = 1e-12


@dataclass(frozen=True)
class ExampleMoments:
    """The moments of every example in every channel, of one batch or of several."""

    means: Tensor  # (examples, channels)
    mean: Tensor  # their average, (channels,)
    squares: Tensor  # (examples, channels), mean squared distance from `mean`

    @classmethod
    def of(cls, inputs: Tensor) -> "ExampleMoments":
        """Those of a batch, (examples, channels, ...)."""
        inputs = wide(inputs)
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
    """Mean and variance to use: as stored, moved towards those of two examples or more by what exceeds their error."""
    num_examples = len(moments.means)
    mean, variance = moments.mean, moments.squares.mean(0) + epsilon
    stored_mean, stored_variance = stored[0].to(mean), stored[1].to(mean) + epsilon
    change = torch.log(variance) - torch.log(stored_variance)
    common = change.mean()
    with torch.no_grad():
        mean_error = (moments.means.var(0) / num_examples / stored_variance).mean()
        mean_gain = beyond_error((mean - stored_mean).square().div(stored_variance).mean() + _TINY, mean_error)
        error = (moments.squares.var(0) / num_examples / variance.square()).mean()
        gain = beyond_error((change - common).square().mean() + _TINY, error)
        common_gain = beyond_error(common.square() + _TINY, error / len(change))
    log_variance = torch.log(stored_variance) + common_gain * common + gain * (change - common)
    return torch.lerp(stored_mean, mean, mean_gain), (log_variance.exp() - epsilon).clamp_min(0)


@dataclass(frozen=True)
class Anchor:
    """What a layer's statistics were at the start, relative to what the examples showed there."""

    shift: Tensor  # (channels,), of the mean, in standard deviations of the examples
    ratio: Tensor  # (channels,), of the variances, `epsilon` included

    @classmethod
    def of(cls, moments: ExampleMoments, stored: tuple[Tensor, Tensor], epsilon: float) -> "Anchor":
        """Hold the statistics of a start against the moments of all examples there."""
        mean, variance = (statistic.to(moments.mean) for statistic in stored)
        seen = moments.squares.mean(0) + epsilon
        return cls((mean - moments.mean) / seen.sqrt(), (variance + epsilon) / seen)

    def statistics(self, moments: ExampleMoments, epsilon: float) -> tuple[Tensor, Tensor]:
        """Mean and variance to use where the examples have these moments.

        >>> examples = torch.tensor([[1.0], [3.0]])
        >>> anchor = Anchor.of(ExampleMoments.of(examples), (torch.tensor([2.5]), torch.tensor([4.0])), 0.0)
        >>> anchor.statistics(ExampleMoments.of(examples), 0.0)
        (tensor([2.5000]), tensor([4.]))
        >>> anchor.statistics(ExampleMoments.of(10 * examples), 0.0)            # a scale of the channel is undone
        (tensor([25.]), tensor([400.]))
        """
        seen = moments.squares.mean(0) + epsilon
        return moments.mean + self.shift * seen.sqrt(), (seen * self.ratio - epsilon).clamp_min(0)
