"""ShuffleNets mix their branches and use every parameter."""

import pytest
import torch

from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.models.shufflenet import shuffle_channels


@pytest.mark.parametrize("name", ["shufflenetv2", "shufflenetv2-x0_5"])
def test_every_parameter_is_used(name: str) -> None:
    model = IMAGE_MODELS[name]()
    model(torch.randn(4, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_shuffle_mixes_the_branches() -> None:
    left, right = torch.arange(3.0).reshape(1, 3, 1, 1), torch.arange(5.0, 8.0).reshape(1, 3, 1, 1)
    assert shuffle_channels(left, right).flatten().tolist() == [0, 5, 1, 6, 2, 7]
