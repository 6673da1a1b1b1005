"""Make a deeper residual network out of a trained shallow one, so that few epochs of training finish it."""

import math

import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.tasks.models.resnet import BasicBlock, ResNet, ThinBlock, ThinResNet

FRESH_SHARE = 0.5
"""Share of an added block's weight variance that is fresh: at 0 copies would stay alike, at 1 nothing is inherited."""

STRENGTH = 1.5
"""Gain of added blocks in units of the old block's. Shares of 1 / n left them idle: without them 95 of 100 images were
still right before any training."""


def grow_resnet(shallow: ResNet | ThinResNet, deep: ResNet | ThinResNet, *, seed: int) -> list[str]:
    """Fill `deep` in place with the weights of `shallow`, and put strong copies before the last block of each stage.

    A copy's convolutions are partly drawn afresh, so that it learns something of its own. Its last gain is larger
    than the old block's, so that the later layers come to rest on it and the gradient reaches all of its weights. The
    function is not kept: training has to go on, at a learning rate that lets work move between blocks. Returns the
    names of the added blocks.

    >>> grow_resnet(ResNet((1, 2, 1, 1), width=2), ResNet((1, 3, 1, 2), width=2), seed=0)
    ['layer2.1', 'layer4.1']
    """
    generator = torch.Generator().manual_seed(seed)
    added: list[str] = []
    for stage, old in shallow.named_children():
        new = getattr(deep, stage)
        if not isinstance(old, nn.Sequential):
            new.load_state_dict(old.state_dict())
            continue
        if len(new) < len(old):
            raise InvalidConfig(
                f"{stage} would shrink from {len(old)} to {len(new)} blocks; grow into a network with more blocks"
            )
        kept = max(len(old) - 1, 1)  # the first block changes the shape and cannot be copied
        for index in range(kept):
            new[index].load_state_dict(old[index].state_dict())
        if len(old) > kept:
            new[-1].load_state_dict(old[-1].state_dict())
        for index in range(kept, len(new) - (len(old) - kept)):
            if len(old) > kept:
                _copy(old[-1], new[index], generator)
            added.append(f"{stage}.{index}")
    return added


def _copy(old: nn.Module, new: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(new, BasicBlock | ThinBlock)
    new.load_state_dict(old.state_dict())
    with torch.no_grad():
        new.bn2.weight.mul_(STRENGTH)
        for weight in (new.conv1.weight, new.conv2.weight):
            fresh = torch.randn(weight.shape, generator=generator) * weight.std()
            weight.mul_(math.sqrt(1.0 - FRESH_SHARE)).add_(fresh, alpha=math.sqrt(FRESH_SHARE))
