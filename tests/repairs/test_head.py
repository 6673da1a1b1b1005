"""A last bias that takes out what noise made of the classes' mean outputs."""

import pytest
import torch
from torch import nn

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.repairs.head import centre_head, recentre
from quietnn.watching.samples import HeadSample
from quietnn.watching.survey import Run

INPUTS = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
CLEAN = ParameterNoise()


def head(bias: list[float]) -> nn.Linear:
    layer = nn.Linear(4, len(bias))
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor(bias))
    return layer


def sample(layer: nn.Linear) -> HeadSample:
    run = Run()
    with torch.no_grad():
        return HeadSample(run, run.through(layer, INPUTS))


@pytest.mark.parametrize(("variance", "taken"), [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0), (8.0, 1.0)])
def test_differences_are_taken_out_in_the_share_that_noise_explains(variance: float, taken: float) -> None:
    layer = head([1.0, -1.0])  # differences whose variance is 2
    share = recentre(sample(layer), weight=CLEAN, bias=ParameterNoise(variance=variance), upstream=0.0)
    assert share == pytest.approx(taken)
    assert layer.bias.tolist() == pytest.approx([1.0 - taken, taken - 1.0])


def test_a_network_is_centred_by_its_own_noise() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    with torch.no_grad():
        network[2].bias.copy_(torch.tensor([3.0, 0.0, -3.0]))
    centre_head(Observation(network, 4.0), network, Evidence(INPUTS))
    means = network(INPUTS).mean(0).detach()
    assert float(means.max() - means.min()) < 0.1


def test_without_noise_or_a_head_nothing_changes() -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    before = network[0].bias.tolist()
    centre_head(Observation(network, 0.0), network, Evidence(INPUTS))
    with pytest.raises(InvalidConfig, match="1 input cannot show a preference"):
        centre_head(Observation(network, 1.0), network, Evidence(INPUTS[:1]))
    nn.init.constant_(network[0].weight, 3e38)
    with pytest.raises(InvalidWeights, match="the outputs are not finite"):
        centre_head(Observation(network, 1.0), network, Evidence(INPUTS))
    assert network[0].bias.tolist() == before
