"""Weights that were measured on a chip."""

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn.analog.readouts import from_readouts
from quietnn.channels.memories import PCM
from quietnn.errors import InvalidConfig, InvalidWeights


def readouts(layer: nn.Linear, number: int, std: float) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    weight = layer.weight.detach()
    return [{"weight": weight + std * torch.randn(weight.shape, generator=generator)} for _ in range(number)]


def test_the_mean_is_taken_and_its_error_added() -> None:
    layer = nn.Linear(50, 40)
    read = readouts(layer, 4, 0.1)
    found = from_readouts(layer, read, noise_variance=0.02)
    assert torch.allclose(found.weights["weight"], torch.stack([one["weight"] for one in read]).mean(dim=0))
    assert found.noise_variance["weight"] == pytest.approx(0.02 + 0.01 / 4, rel=0.05)
    assert found.noisy == ("weight",)


@pytest.mark.parametrize("compensate", [True, False])
def test_a_memory_tells_noise_and_gain(compensate: bool) -> None:
    torch.manual_seed(0)
    layer, memory = nn.Linear(200, 100), PCM(seconds=86400, compensate=compensate)
    sent = quietnn.transmit(layer, channel=memory, seed=1)
    found = from_readouts(layer, [{"weight": sent.received.weight.detach()}], memory=memory).at_unit_gain()
    error = (found.weights["weight"] - layer.weight.detach()).var()
    assert found.noise_variance["weight"] == pytest.approx(float(error), rel=0.35)


def test_readouts_that_do_not_fit() -> None:
    layer = nn.Linear(3, 2)
    with pytest.raises(InvalidWeights, match=r"weight has shape \(3, 3\) where the model has \(2, 3\)"):
        from_readouts(layer, [{"weight": torch.zeros(3, 3)}], noise_variance=0.1)
    with pytest.raises(InvalidWeights, match="'conv' is not a tensor"):
        from_readouts(layer, [{"conv": torch.zeros(3, 3)}], noise_variance=0.1)
    with pytest.raises(InvalidConfig, match="'bias' is in some readouts"):
        from_readouts(layer, [{"weight": torch.zeros(2, 3)}, dict(layer.state_dict())], noise_variance=0.1)
    with pytest.raises(InvalidConfig, match="no readout"):
        from_readouts(layer, [], noise_variance=0.1)
    with pytest.raises(InvalidConfig, match="either the model of the memory or its noise variance"):
        from_readouts(layer, [{"weight": torch.zeros(2, 3)}])
