"""BatchNorm statistics that follow the weights from where a calibration put them.

A hundred examples tell poorly what the statistics of a network are, and well how they change when its weights do. At
a start whose statistics `m, v` were fitted to its weights, the examples show other moments, `m0` and `v0`: they are
few, and of another kind than what the sender trained on. That difference is kept, in standard deviations of each
channel, while the weights move:

    mean = m' + sqrt(V') (m - m0) / sqrt(V0)        V = V' (v + epsilon) / V0        V' = v' + epsilon

for the moments `m', v'` of the examples at the weights as they are. At the start these are its own statistics to
the last digits, and a channel that is made larger or smaller changes nothing, as for any BatchNorm on its own batch.
"""

from dataclasses import dataclass

from torch import Tensor

from quietnn.repairs.fitting.blended_norm import ExampleMoments


@dataclass(frozen=True)
class Anchor:
    """What a layer's statistics were at the start, relative to what the examples showed there.

    Attributes:
        shift: (channels,), of the mean, in standard deviations of the examples.
        ratio: (channels,), of the variances, `epsilon` included.
    """

    shift: Tensor
    ratio: Tensor

    @classmethod
    def of(cls, moments: ExampleMoments, stored: tuple[Tensor, Tensor], epsilon: float) -> "Anchor":
        """Hold the statistics of a start against the moments of all examples there."""
        mean, variance = (statistic.to(moments.mean) for statistic in stored)
        seen = moments.squares.mean(0) + epsilon
        return cls((mean - moments.mean) / seen.sqrt(), (variance + epsilon) / seen)

    def statistics(self, moments: ExampleMoments, epsilon: float) -> tuple[Tensor, Tensor]:
        """Mean and variance to use where the examples have these moments.

        >>> import torch
        >>> examples = torch.tensor([[1.0], [3.0]])
        >>> anchor = Anchor.of(ExampleMoments.of(examples), (torch.tensor([2.5]), torch.tensor([4.0])), 0.0)
        >>> anchor.statistics(ExampleMoments.of(examples), 0.0)
        (tensor([2.5000]), tensor([4.]))
        >>> anchor.statistics(ExampleMoments.of(10 * examples), 0.0)            # a scale of the channel is undone
        (tensor([25.]), tensor([400.]))
        """
        seen = moments.squares.mean(0) + epsilon
        return moments.mean + self.shift * seen.sqrt(), (seen * self.ratio - epsilon).clamp_min(0)
