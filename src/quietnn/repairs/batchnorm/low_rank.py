"""The addition of low rank to a layer that takes its outputs nearest to a target: reduced-rank regression.

With patches `x` of covariance `C` over inputs and places, errors `e` of the outputs, and `G = cov(e, x)`, the addition
`D` of rank `k` that leaves the least of `e - D x` has

    G (C + lambda)^(-1/2) = U S V        D = U_k S_k V_k (C + lambda)^(-1/2)        lambda = tr(C) / n

(Izenman 1975). The ridge `lambda` is that of a prior: noise that makes errors of this power has entries of variance
`mean(e^2) / tr(C)`, and `n` places tell of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.watching.batch_moments import wide
from quietnn.watching.moments import pad

_IMAGES = 32
"""Whose patches are in memory at once."""

_TINY = 1e-30


@dataclass(frozen=True)
class LowRank:
    """Columns `U`, rows `S V (C + lambda)^(-1/2)`, and the values `S`: roots of the errors that directions take off."""

    up: Tensor
    down: Tensor
    values: Tensor

    def first(self, rank: int) -> tuple[Tensor, Tensor]:
        """`(B, A)` with `D = B A`."""
        return self.up[:, :rank], self.down[:rank]


def takes(layer: nn.Module) -> bool:
    """Whether a layer multiplies patches of all of its inputs, so that an addition of low rank fits beside it."""
    return type(layer) is nn.Linear or (type(layer) is nn.Conv2d and layer.groups == 1)


def regress(layer: nn.Module, inputs: Tensor, errors: Tensor) -> LowRank:
    """The regression of errors, (images, outputs, ...) of mean zero, on what the layer's weights multiply.

    >>> inputs = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> found = regress(nn.Linear(3, 2), inputs, inputs @ torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]))
    >>> up, down = found.first(1)
    >>> (up @ down).round(decimals=1).abs()
    tensor([[1., 0., 0.],
            [2., 0., 0.]])
    """
    count, total = 0, [torch.zeros(())] * 3
    for some, wrong in zip(torch.split(inputs, _IMAGES), torch.split(errors, _IMAGES), strict=True):
        patches, rows = _patches(layer, wide(some)), wrong.transpose(0, 1).flatten(1)
        count += patches.shape[1]
        sums = patches @ patches.T, rows @ patches.T, patches.sum(1)
        total = [one + other for one, other in zip(total, sums, strict=True)]
    products, crossed, mean = (one / count for one in total)
    covariance = (products - torch.outer(mean, mean)).double()  # errors have mean zero, so that `crossed` is centred
    powers, basis = torch.linalg.eigh(covariance)
    power = powers.clamp_min(0).sum()
    root = (powers.clamp_min(0) + power / count).clamp_min(_TINY).rsqrt()
    up, values, down = torch.linalg.svd((crossed.double() @ basis) * root, full_matrices=False)
    down = values[:, None] * ((down * root) @ basis.T)
    return LowRank(up.to(errors), down.to(errors), values.to(errors))


def outputs(layer: nn.Module, inputs: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """What an addition `B A` beside the layer adds to its outputs."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    weight = (up @ down).view_as(layer.weight).to(inputs)
    if isinstance(layer, nn.Linear):
        return functional.linear(inputs, weight)
    made: Tensor = layer._conv_forward(inputs, weight, None)
    return made


def _patches(layer: nn.Module, inputs: Tensor) -> Tensor:
    """(entries, places)"""
    if isinstance(layer, nn.Linear):
        return inputs.flatten(0, -2).T
    assert isinstance(layer, nn.Conv2d)
    unfolded = functional.unfold(pad(layer, inputs), layer.kernel_size, dilation=layer.dilation, stride=layer.stride)
    return unfolded.transpose(0, 1).flatten(1)
