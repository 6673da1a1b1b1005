"""Variants of inputs that keep their labels, for methods that fit to few examples and were not given any: shifts."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from quietnn.batches import Inputs

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Random variants of a batch of inputs that keep their labels, for example crops and flips."""

Variants = Augment | Literal[False] | None
"""What a user says of them: the function, `False` for none, or nothing."""

_FEWEST_PIXELS = 16
"""Along a side of what is taken for an image: in fewer, a shift by one may make another thing of it."""

_MOST_CHANNELS = 4
_LEAST_LIKENESS = 0.5
_NUM_LOOKED_AT = 32


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to an eighth of its side in both directions; its edge is repeated where nothing was.

    >>> image = torch.arange(16.0).repeat(16, 1)[None, None]               # brighter to the right
    >>> moved = shifted(image, torch.Generator().manual_seed(1))
    >>> (moved - image).unique().tolist()
    [0.0, 1.0, 2.0]
    """
    num_images, _, *sides = images.shape
    rows, columns = (
        (torch.arange(side) + torch.randint(-(side // 8), side // 8 + 1, (num_images, 1), generator=generator)).clamp(
            0, side - 1
        )
        for side in sides
    )
    every = torch.arange(num_images)[:, None, None]
    return images[every, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).contiguous()


def how_far(images: Tensor) -> str:
    """What `shifted` does to these, in words."""
    return f"images shifted by up to {max(side // 8 for side in images.shape[2:])} pixels"


def look_like_images(inputs: Inputs) -> bool:
    """Whether inputs are `(images, channels, rows, columns)` in which a pixel is like its neighbours.

    >>> noise = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> look_like_images(noise), look_like_images(noise.cumsum(2).cumsum(3)), look_like_images(noise[..., 0])
    (False, True, False)
    """
    if not isinstance(inputs, Tensor) or inputs.dim() != 4 or not inputs.is_floating_point():
        return False
    if inputs.shape[1] > _MOST_CHANNELS or min(inputs.shape[2:]) < _FEWEST_PIXELS:
        return False
    some = inputs[:_NUM_LOOKED_AT].double()
    some = some - some.mean(dim=(2, 3), keepdim=True)
    power = float(some.square().mean())
    likeness = [float((one * other).mean()) for one, other in (
        (some[..., 1:, :], some[..., :-1, :]), (some[..., 1:], some[..., :-1])
    )]  # fmt: skip
    return min(likeness) > _LEAST_LIKENESS * power
