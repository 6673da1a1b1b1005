"""Moments of one batch, which merge with those of the next into what all examples at once would give."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def wide(tensor: Tensor) -> Tensor:
    """The tensor itself, or in 32 bits where it has fewer."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


@dataclass(frozen=True)
class ImageMoments:
    """Mean and mean square of every channel of each image, (images, channels): errors are judged between images."""

    means: Tensor  # less a value near the channel's mean, so that squares lose no digits
    squares: Tensor  # of the same differences

    @classmethod
    def of(cls, activations: Tensor, *, about: Tensor) -> "ImageMoments":
        """The moments of activations (images, channels, ...), about one value for each channel.

        >>> ImageMoments.of(torch.tensor([[[1.0, 3.0]]]), about=torch.zeros(1))
        ImageMoments(means=tensor([[2.]]), squares=tensor([[5.]]))
        """
        shape = (1, -1) + (1,) * (activations.dim() - 2)
        positions = tuple(range(2, activations.dim()))
        activations = wide(activations)
        centred = activations - about.to(activations).view(shape)
        if not positions:
            return cls(centred, centred.square())
        means = centred.mean(positions)
        return cls(means, centred.square_().mean(positions))

    @classmethod
    def joined(cls, parts: Sequence["ImageMoments"]) -> "ImageMoments":
        """Those of all images."""
        return cls(torch.cat([part.means for part in parts]), torch.cat([part.squares for part in parts]))


@dataclass(frozen=True)
class EntryMoments:
    """Mean and variance of each entry over examples, float64, in the form of Chan, Golub and LeVeque (1983)."""

    count: int  # of examples
    mean: Tensor
    variance: Tensor  # the sum of squares about the mean over `count - correction`
    correction: int = 0  # 1 for the unbiased variance

    @classmethod
    def of(cls, inputs: Tensor) -> "EntryMoments":
        """Of the inputs of a layer, (examples, ...)."""
        inputs = wide(inputs)
        mean = _image_mean(inputs)
        variance = _image_mean((inputs - mean).square_())
        return cls(len(inputs), mean.double(), variance.double())

    @classmethod
    def unbiased(cls, outputs: Tensor) -> "EntryMoments":
        """Of the outputs of a network, (examples, classes)."""
        outputs = outputs.double()
        mean = outputs.mean(0)
        return cls(len(outputs), mean, outputs.var(0) if len(outputs) > 1 else torch.zeros_like(mean), 1)

    def merged(self, other: "EntryMoments") -> "EntryMoments":
        """Those of both.

        >>> parts = [EntryMoments.unbiased(part) for part in torch.tensor([[[1.0], [2.0]], [[4.0], [9.0]]])]
        >>> whole = parts[0].merged(parts[1])
        >>> whole.count, whole.mean.item(), round(whole.variance.item(), 4)     # of 1, 2, 4 and 9
        (4, 4.0, 12.6667)
        """
        count, change = self.count + other.count, other.mean - self.mean
        squares = (
            self.variance * (self.count - self.correction)
            + other.variance * (other.count - other.correction)
            + change**2 * (self.count * other.count / count)
        )
        mean = self.mean + change * (other.count / count)
        return EntryMoments(count, mean, squares / (count - self.correction), self.correction)


@dataclass(frozen=True)
class InputSum:
    """How each output channel of a layer goes with the sum `S` of the inputs it is made of, (channels,), float64."""

    count: int  # of images
    output_mean: Tensor
    sum_mean: Tensor
    covariance: Tensor  # of the two
    power: Tensor  # the variance of `S`

    @classmethod
    def of(cls, layer: nn.Module, inputs: Tensor, outputs: Tensor) -> "InputSum":
        """Over images and positions.

        >>> InputSum.of(nn.Linear(2, 1), torch.tensor([[0.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0], [2.0]])).power
        tensor([1.], dtype=torch.float64)
        """
        if isinstance(layer, nn.Linear):
            sums = inputs.sum(1, keepdim=True)
        else:
            assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
            sums = layer._conv_forward(inputs, torch.ones_like(layer.weight[: layer.groups]), None)
        dims = (0, *range(2, outputs.dim()))
        mean = sums.mean(dims, keepdim=True)
        sums = sums - mean
        repeats = outputs.shape[1] // sums.shape[1]
        covariance = (outputs * sums.repeat_interleave(repeats, dim=1)).mean(dims).double()
        power = sums.square().mean(dims).double().repeat_interleave(repeats)
        sum_mean = mean.flatten().double().repeat_interleave(repeats)
        return cls(len(outputs), outputs.mean(dims).double(), sum_mean, covariance, power)

    def merged(self, other: "InputSum") -> "InputSum":
        """Those of both, if all images are of one size."""
        count = self.count + other.count
        share = other.count / count
        output_change, sum_change = other.output_mean - self.output_mean, other.sum_mean - self.sum_mean
        between = share * (1 - share) * sum_change
        return InputSum(
            count,
            self.output_mean + share * output_change,
            self.sum_mean + share * sum_change,
            self.covariance + share * (other.covariance - self.covariance) + between * output_change,
            self.power + share * (other.power - self.power) + between * sum_change,
        )


def _image_mean(inputs: Tensor) -> Tensor:
    """The mean over images, summed along memory: `mean(0)` of a channels-last batch takes four times as long."""
    last = inputs.dim() == 4 and inputs.is_contiguous(memory_format=torch.channels_last)
    ordered = inputs.movedim(1, -1) if last else inputs
    mean = ordered.reshape(len(inputs), -1).mean(0).view(ordered.shape[1:])
    return mean.movedim(-1, 0) if last else mean
