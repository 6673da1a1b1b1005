"""What a few inputs say about a layer: moments of its outputs by channel, and of the patches its weights multiply."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional, grad

from quietnn.watching.batch_moments import EntryMoments, ImageMoments, wide

_WEIGHT_GRADIENT: dict[int, Callable[..., Tensor]] = {
    1: grad.conv1d_weight,
    2: grad.conv2d_weight,
    3: grad.conv3d_weight,
}

_IMAGES_PER_HALF = 16
"""Images in each of the two halves that measure how concentrated the inputs are; more would only cost time."""

CONCENTRATION_IMAGES = 2 * _IMAGES_PER_HALF
"""The first images, which are all that `concentration` looks at."""

_CHANNELS = 32
"""Output channels that are asked for it, evenly spaced, where they all see the same inputs."""


@dataclass(frozen=True)
class ChannelMoments:
    """Mean and variance of each channel over images and positions, with their own sampling errors.

    Positions within an image are correlated, so errors are judged between images: an image counts once.
    """

    mean: Tensor  # (channels,), float64, like all below
    variance: Tensor  # about the true mean: that of the sample plus the error of the sample's mean
    mean_error: Tensor  # sampling variance of `mean`
    variance_error: Tensor  # sampling variance of `variance`
    common_error: float  # sampling variance of the mean over channels of `variance / E[variance]`

    @classmethod
    def of(cls, images: ImageMoments, *, about: Tensor, epsilon: float = 0.0) -> "ChannelMoments":
        """The moments from those of each of two or more images, about the same values.

        `epsilon` is added to a variance before anything is divided by it.

        >>> about = torch.zeros(1)
        >>> moments = ChannelMoments.of(ImageMoments.of(torch.tensor([[1.0], [3.0]]), about=about), about=about)
        >>> moments.mean.item(), moments.variance.item(), moments.mean_error.item()
        (2.0, 2.0, 1.0)
        """
        per_image, squares = images.means.double(), images.squares.double()
        mean = per_image.mean(0)
        spread = squares - 2 * mean * per_image + mean**2  # of each image, about the mean of all
        num_images = len(per_image)
        mean_error = per_image.var(0) / num_images
        relative = (spread / (spread.mean(0) + epsilon).clamp_min(torch.finfo(torch.float64).tiny)).mean(1)
        return cls(
            mean=about.double() + mean,
            variance=spread.mean(0).clamp_min(0) + mean_error,
            mean_error=mean_error,
            variance_error=spread.var(0) / num_images,
            common_error=float(relative.var()) / num_images,
        )

    @property
    def is_finite(self) -> bool:
        """Whether neither a mean nor a variance overflowed."""
        return bool(torch.isfinite(self.mean).all() and torch.isfinite(self.variance).all())


@dataclass(frozen=True)
class PatchMoments:
    """Sums over the entries `x_k` that a channel's weights multiply, shape (channels,), float64."""

    squared_means: Tensor  # `sum_k E[x_k]^2`: what a channel's mean moves by per unit of noise variance, squared
    variances: Tensor  # `sum_k Var[x_k] = tr(C)`: what its variance grows by per unit of noise variance
    means: Tensor  # `sum_k E[x_k]`: what its mean moves by when every weight grows by one
    entries: Tensor  # (groups, weights of a channel): `E[x_k]`, in the order of the weights

    @classmethod
    def of(cls, layer: nn.Module, entries: EntryMoments) -> "PatchMoments":
        """The moments over images and positions of the patches that a convolution or linear layer sees.

        >>> entries = EntryMoments.of(torch.tensor([[[1.0, 3.0, 5.0]]]))       # patches (1, 3) and (3, 5)
        >>> moments = PatchMoments.of(nn.Conv1d(1, 1, kernel_size=2), entries)
        >>> moments.squared_means.item(), moments.variances.item(), moments.means.item()
        (20.0, 2.0, 6.0)
        """
        mean, second = entries.mean, entries.variance + entries.mean**2
        if isinstance(layer, nn.Linear):
            first, power = mean[None], second.sum()[None]
        else:
            first, power = _over_taps(layer, mean, second)
        squares = first.square().sum(1)
        by_group = torch.stack([squares, (power - squares).clamp_min(0), first.sum(1)])
        assert isinstance(layer.weight, Tensor)
        squared_means, variances, means = by_group.repeat_interleave(len(layer.weight) // len(first), dim=1)
        return cls(squared_means, variances, means, first)


def _over_taps(layer: nn.Module, mean: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """`E[x_k]` and `sum_k E[x_k^2]` by group: each tap of a kernel sees its own strided part of the padded input."""
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    mean, second = pad(layer, mean[None])[0], pad(layer, second[None])[0]
    spans = [
        (size - dilation * (kernel - 1) - 1) // stride * stride + 1
        for size, dilation, kernel, stride in zip(
            mean.shape[1:], layer.dilation, layer.kernel_size, layer.stride, strict=True
        )
    ]
    first: list[Tensor] = []
    power = torch.zeros(len(mean), dtype=torch.float64, device=mean.device)
    for tap in itertools.product(*(range(size) for size in layer.kernel_size)):
        starts = [offset * dilation for offset, dilation in zip(tap, layer.dilation, strict=True)]
        window = (slice(None), *(slice(a, a + n, s) for a, n, s in zip(starts, spans, layer.stride, strict=True)))
        first.append(mean[window].flatten(1).mean(1))
        power += second[window].flatten(1).mean(1)
    return torch.stack(first, 1).view(layer.groups, -1), power.view(layer.groups, -1).sum(1)


def pad(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """The input with a convolution's own padding around it, whatever its mode."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)


def concentration(layer: nn.Module, inputs: Tensor, outputs: Tensor, variances: Tensor) -> float:
    """How concentrated the inputs are along the weights: `q = w^T C^2 w / (tr(C) w^T C w)`, one for the layer.

    It lies between 0 and 1: 1 where the inputs vary along one direction and the weights follow it, `1 / K` for K
    uncorrelated inputs of equal variance. `C w` is the covariance of output and inputs, that is the gradient of a
    convolution by its weights. Two halves of the images are multiplied, so that sampling noise does not count.
    `variances` is `tr(C)` of each channel.
    """
    inputs, outputs = wide(inputs), wide(outputs)
    if getattr(layer, "groups", 1) == 1:
        step = max(outputs.shape[1] // _CHANNELS, 1)
        outputs, variances = outputs[:, ::step], variances[::step]
    half = min(_IMAGES_PER_HALF, len(inputs) // 2)
    first, first_power = _covariance(layer, inputs[:half], outputs[:half])
    second, second_power = _covariance(layer, inputs[half : 2 * half], outputs[half : 2 * half])
    curvature = (first * second).flatten(1).sum(1).double()
    largest = (variances * (first_power + second_power) / 2).sum()
    return float((curvature.sum() / largest).clamp(0, 1)) if largest > 0 else 0.0


def _covariance(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance of each output channel with the inputs it is made of, and the channel's variance."""
    positions = (0, *range(2, outputs.dim()))
    centred = outputs - outputs.mean(positions, keepdim=True)
    count = centred.numel() / centred.shape[1]
    power = centred.square().mean(positions).double()
    if isinstance(layer, nn.Linear):
        return centred.T @ inputs / count, power
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    gradient = _WEIGHT_GRADIENT[inputs.dim() - 2]
    covariance = gradient(
        pad(layer, inputs),
        (centred.shape[1], *layer.weight.shape[1:]),
        centred,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    return covariance / count, power
