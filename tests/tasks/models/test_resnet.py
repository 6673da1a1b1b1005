"""Residual networks: blocks that are idle pass what they are given."""

import pytest
import torch
from torch import nn

from quietnn.tasks.models.resnet import BasicBlock, DigitsResNet, ThinBlock


@pytest.mark.parametrize("block", [BasicBlock, ThinBlock])
def test_a_block_whose_last_gain_is_zero_leaves_its_shortcut(block: type[BasicBlock] | type[ThinBlock]) -> None:
    images = torch.rand(2, 4, 6, 6)
    same, wider = block(4, 4, 1).eval(), block(4, 8, 2).eval()
    for one in (same, wider):
        nn.init.zeros_(one.bn2.weight)
    assert torch.equal(same(images), images)
    projection = wider.shortcut if isinstance(wider, BasicBlock) else wider.downsample
    assert projection is not None
    assert torch.equal(wider(images), projection(images).relu())


def test_the_order_of_layers_is_that_of_the_published_results() -> None:
    """Methods that visit layers in the order of a forward pass give other bits in another order."""
    called: list[str] = []
    model = DigitsResNet().eval()
    for name, layer in model.layer2.named_modules():
        layer.register_forward_hook(lambda *_, name=name: called.append(name))
    model(torch.rand(1, 1, 8, 8))
    assert called == ["downsample.0", "downsample.1", "downsample", "conv1", "bn1", "conv2", "bn2", ""]
