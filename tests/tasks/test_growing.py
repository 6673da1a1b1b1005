"""A grown network keeps what was trained, and its added blocks take part from the start."""

import pytest
import torch

from quietnn.errors import InvalidConfig
from quietnn.tasks.growing import grow_resnet
from quietnn.tasks.models.resnet import BasicBlock, ResNet, ThinResNet


def network(*num_blocks: int) -> ResNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        assert len(num_blocks) == 4
        return ResNet(num_blocks, width=4)


def test_the_blocks_of_the_resnets_of_the_paper() -> None:
    deep = network(3, 4, 6, 3)
    added = grow_resnet(network(2, 2, 2, 2), deep, seed=0)
    assert added == [*("layer1.1", "layer2.1", "layer2.2", "layer3.1", "layer3.2", "layer3.3", "layer3.4", "layer4.1")]


def test_without_its_added_blocks_it_is_the_shallow_network() -> None:
    shallow, deep = network(2, 2, 2, 2).eval(), network(3, 4, 6, 3).eval()
    images = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    added = grow_resnet(shallow, deep, seed=0)
    with torch.no_grad():
        assert not torch.allclose(deep(images), shallow(images), atol=1e-3)
        for name in added:
            block = deep.get_submodule(name)
            assert isinstance(block, BasicBlock)
            block.bn2.weight.zero_()
            block.bn2.bias.zero_()
        torch.testing.assert_close(deep(images), shallow(images))


def test_every_weight_of_an_added_block_has_a_gradient() -> None:
    deep = network(3, 4, 6, 3)
    added = grow_resnet(network(2, 2, 2, 2), deep, seed=0)
    deep(torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    for name in added:
        for parameter in deep.get_submodule(name).parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().sum() > 0


def test_copies_differ_by_the_fresh_share() -> None:
    shallow, deep = network(2, 2, 2, 2), network(2, 2, 4, 2)
    grow_resnet(shallow, deep, seed=0)
    old = shallow.layer3[1].conv1.weight.flatten()
    first, second = deep.layer3[1].conv1.weight.flatten(), deep.layer3[2].conv1.weight.flatten()
    alike = torch.corrcoef(torch.stack([old, first, second]).detach())
    assert float(alike[0, 1]) == pytest.approx(0.5**0.5, abs=0.1)
    assert float(alike[1, 2]) == pytest.approx(0.5, abs=0.1)
    assert float((first.std() / old.std()).detach()) == pytest.approx(1.0, abs=0.1)


def test_a_network_does_not_shrink() -> None:
    with pytest.raises(InvalidConfig, match="layer2 would shrink from 2 to 1"):
        grow_resnet(network(2, 2, 2, 2), network(2, 1, 2, 2), seed=0)


def test_a_thin_network_grows_too() -> None:
    shallow, deep = ThinResNet(3).eval(), ThinResNet(5).eval()
    added = grow_resnet(shallow, deep, seed=0)
    assert added == [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (2, 3)]
    for name in added:
        block = deep.get_submodule(name)
        block.bn2.weight.data.zero_()
        block.bn2.bias.data.zero_()
    images = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(deep(images), shallow(images))
