"""The clean means of BatchNorms as measurements of the weights in front of them (docs/how-it-works/structured.md).

The mean of a channel is `w . m`, with `m` the mean patch. It arrived without noise, so `z . m` is known, and with it
the noise on the weights along `m`. Given `z . m = d`, white noise is `d m / |m|^2` on average.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Shift:
    """What noise on the weights of a layer has most likely done to the means of its outputs."""

    layer: nn.Module
    means: Tensor  # (channels,), `z . m` as far as it is told
    patch: Tensor  # (groups, weights of a channel), `m`


@torch.no_grad()
def take_out(shifts: Iterable[Shift]) -> None:
    """Take the noise along the mean patch out of the weights, in place; a patch of zeros tells nothing.

    Weights that several calls share are told by the first: its patch is much like that of the next.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 1.0)
    >>> take_out([Shift(layer, torch.tensor([0.5]), torch.tensor([[0.0, 2.0]]))])      # 2 of the mean is 0.5 too many
    >>> layer.weight.tolist()
    [[1.0, 0.75]]
    """
    done: set[nn.Parameter] = set()
    for shift in shifts:
        weight, patch = shift.layer.get_parameter("weight"), shift.patch
        if weight in done:
            continue
        done.add(weight)
        power = patch.square().sum(1, keepdim=True)
        along = torch.where(power > 0, patch / power.clamp_min(torch.finfo(patch.dtype).tiny), 0.0)
        repeats = len(weight) // len(patch)
        noise = shift.means[:, None] * along.repeat_interleave(repeats, dim=0)
        weight.sub_(noise.view_as(weight).to(weight))
