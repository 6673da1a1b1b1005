"""What each residual block is worth: the accuracy lost when its branch is set to zero.

A grown network whose added blocks do nothing would be the shallow one under another name.
"""

import copy
from collections.abc import Collection

import torch
from torch import nn

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples, Task
from quietnn.tasks.models.resnet import BasicBlock


def without_blocks(model: nn.Module, names: Collection[str]) -> nn.Module:
    """A copy of the network in which the residual branches of these blocks, such as `layer3.4`, give zero."""
    blocks = residual_blocks(model)
    unknown = [name for name in names if name not in blocks]
    if unknown:
        raise InvalidConfig(f"{unknown[0]!r} is not a residual block of this network; there are {', '.join(blocks)}")
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name in names:
            block = copied.get_submodule(name)
            assert isinstance(block, BasicBlock)
            for parameter in (block.bn2.weight, block.bn2.bias):
                parameter.zero_()
    return copied


def residual_blocks(model: nn.Module) -> tuple[str, ...]:
    """The names of a network's residual blocks, in order.

    >>> from quietnn.tasks.models.resnet import ResNet
    >>> residual_blocks(ResNet((1, 2, 1, 1), width=2))
    ('layer1.0', 'layer2.0', 'layer2.1', 'layer3.0', 'layer4.0')
    """
    return tuple(name for name, module in model.named_modules() if isinstance(module, BasicBlock))


def block_costs(task: Task, model: nn.Module, examples: Examples, added: Collection[str]) -> dict[str, float]:
    """The accuracy lost without each block alone and, as `"added"`, without all that the network was grown by."""
    parts = {"added": tuple(added), **{name: (name,) for name in residual_blocks(model)}}

    def accuracy(network: nn.Module) -> float:
        return task.evaluate(network, examples).accuracy or 0.0

    whole = accuracy(model)
    return {name: whole - accuracy(without_blocks(model, blocks)) for name, blocks in parts.items()}
