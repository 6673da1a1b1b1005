"""What a training step sees: random crops, flips and smaller images; and the weights through noise, or clipped."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from quietnn.batches import logits_of
from quietnn.moments import WeightStatistics
from quietnn.tasks.base import Inputs
from quietnn.units import db_to_ratio
from quietnn.weights import noisy_names


def random_crop_flip(images: Tensor, *, padding: int, generator: torch.Generator, flips: bool = True) -> Tensor:
    """Shift every image by up to `padding` pixels (zeros enter) and, with `flips`, mirror half of them."""
    batch, channels, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    shifts = torch.randint(0, 2 * padding + 1, (2, batch, 1), generator=generator)
    flipped = torch.rand(batch, 1, generator=generator) < (0.5 if flips else 0.0)
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.where(flipped, torch.arange(width - 1, -1, -1), torch.arange(width))
    # One gather over flat positions is far quicker than a Python loop over images.
    positions = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).reshape(batch, 1, -1)
    flat = padded.reshape(batch, channels, -1).gather(2, positions.expand(-1, channels, -1))
    return flat.reshape(batch, channels, height, width)


def shrink(images: Tensor, size: int) -> Tensor:
    """Average-pool float images down to `size` x `size`; images of that size come back as they are.

    >>> shrink(torch.ones(1, 3, 32, 32), 16).shape
    torch.Size([1, 3, 16, 16])
    """
    if images.shape[-1] == size:
        return images
    return functional.interpolate(images, size=(size, size), mode="bilinear", antialias=True)


def noisy_logits(
    model: nn.Module, inputs: Inputs, *, wnr_db: float | None = None, share: float | None = None
) -> Tensor:
    """Logits of the model with noise on its weights; gradients reach the clean weights.

    Every step sees the weights through a fresh draw of the channel, `r = w + z` at a given WNR, and moves the clean
    weights by the gradient at the noisy ones, so that they learn to bear it (Zhou et al. 2020, "Noisy machines";
    Jankowski et al. 2022, "AirNet"): the baseline that needs retraining. The standard deviation is that of a WNR, or a
    share of the largest weight of each tensor, as on analog memory (Joshi et al. 2020).
    """
    names = set(noisy_names(model))
    weights = {name: parameter for name, parameter in model.named_parameters() if name in names}
    stds = dict.fromkeys(weights, 0.0)
    if wnr_db is not None:
        stds = dict.fromkeys(
            stds, (WeightStatistics.from_clean(weights.values()).variance / db_to_ratio(wnr_db)) ** 0.5
        )
    elif share is not None:
        stds = {name: share * float(weight.detach().abs().max()) for name, weight in weights.items()}
    noisy = {name: weight + stds[name] * torch.randn_like(weight) for name, weight in weights.items()}
    arguments = ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})
    return logits_of(functional_call(model, noisy, *arguments))


@torch.no_grad()
def clip_weights(model: nn.Module, stds: float) -> None:
    """Hold every noisy weight within so many standard deviations of its tensor, in place (Joshi et al. 2020).

    The largest weight has the largest conductance, so that the error of all others is a share of it.
    """
    names = set(noisy_names(model))
    for name, weight in model.named_parameters():
        if name in names:
            limit = stds * float(weight.std())
            weight.clamp_(-limit, limit)
