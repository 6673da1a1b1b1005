"""A block that does nothing costs nothing; one that the network needs is missed."""

import runpy
from pathlib import Path

import pytest
import torch

from quietnn.errors import InvalidConfig
from quietnn.tasks.base import Examples, Task
from quietnn.tasks.models.resnet import ResNet

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "block_costs.py"))
block_costs, without_blocks = BENCHMARK["block_costs"], BENCHMARK["without_blocks"]


def network() -> ResNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = ResNet((2, 2, 1, 1), width=4).eval()
    with torch.no_grad():
        model.layer1[1].bn2.weight.zero_()  # this one does nothing
        model.layer2[1].bn2.weight.fill_(5.0)
    return model


def examples_of(model: ResNet) -> Examples:
    """Images labelled by the network itself, so that it is always right."""
    images = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return Examples(images, model(images).argmax(dim=1))


def test_costs() -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    examples = examples_of(model)
    task = Task("mine", network, lambda num, seed: examples, lambda num: examples)
    costs = block_costs(task, model, examples, ["layer1.1", "layer2.1"])
    assert costs["layer1.1"] == 0.0
    assert costs["layer2.1"] == costs["added"] > 0.0
    assert list(costs) == ["added", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer4.0"]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_what_is_not_a_block_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"'layer1\.7' is not a residual block.*layer4\.0"):
        without_blocks(network(), ["layer1.7"])
