"""Noise power from the mismatch of BatchNorm statistics."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.noise_power.batch_norm import LayerMismatch, _pool, noise_power_from_batch_norm
from quietnn.tasks.digits import digits_task

TASK = digits_task()


def one_layer(num_inputs: int, num_outputs: int) -> nn.Sequential:
    """A linear layer whose BatchNorm knows the true statistics for standard Gaussian inputs."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(num_inputs, num_outputs, bias=False), nn.BatchNorm1d(num_outputs)).eval()
    network[1].running_var.copy_(network[0].weight.detach().square().sum(1))
    return network


def test_one_layer_gives_an_unbiased_estimate_with_an_honest_error() -> None:
    network, inputs = one_layer(32, 64), torch.randn(1000, 32, generator=torch.Generator().manual_seed(1))
    off, relative = [], []
    for seed in range(20):
        observation = transmit(network, wnr_db=0.0, seed=seed)
        estimate = noise_power_from_batch_norm(observation.received, inputs)
        off.append((estimate.variance - observation.noise_variance) / estimate.standard_error)
        relative.append(estimate.variance / observation.noise_variance)
    assert abs(sum(relative) / 20 - 1) < 0.04
    assert sum(abs(one) < 2 for one in off) >= 17
    assert max(abs(one) for one in off) > 0.3, "the error is not just a very large number"


def test_signal_that_noise_upstream_has_taken_is_not_missed() -> None:
    """Two layers that are as the formula says: half of the share of noise in what a layer is given is signal lost."""
    variance, clean, per_noise = 0.5, (2.0, 3.0), (4.0, 5.0)
    first = clean[0] + variance * per_noise[0]
    upstream = variance * per_noise[0] / first
    second = (1 - upstream / 2) * clean[1] + variance * per_noise[1]
    layers = [
        LayerMismatch(index, clean[index], seen, per_noise[index], cross=0.0, square=0.01, sampling=0.001)
        for index, seen in enumerate((first, second))
    ]
    estimate = _pool(layers, [(10, 20.0), (10, 20.0)])
    assert estimate.variance == pytest.approx(variance, rel=1e-3)


@pytest.mark.parametrize("wnr_db", [-2.0, 6.0])
def test_the_digits_network_lies_within_its_own_error(wnr_db: float) -> None:
    off = []
    for seed in range(3):
        observation = transmit(TASK.load_model(), wnr_db=wnr_db, seed=seed)
        estimate = noise_power_from_batch_norm(observation.received, TASK.tuning_examples(100, seed).inputs)
        off.append((estimate.variance - observation.noise_variance) / estimate.standard_error)
        assert estimate.variance == pytest.approx(observation.noise_variance, rel=1.0), "within 3 dB"
    assert max(abs(one) for one in off) < 2


def test_without_noise_the_estimate_is_near_zero_and_says_that_little_is_known() -> None:
    loud = transmit(TASK.load_model(), wnr_db=0.0, seed=0).noise_variance
    estimate = noise_power_from_batch_norm(TASK.load_model(), TASK.tuning_examples(100, 0).inputs)
    assert estimate.variance < 0.02 * loud
    assert estimate.variance < 2 * estimate.standard_error


def test_the_network_stays_as_it_is(snapshot: Callable[[Mapping[str, Tensor]], dict[str, bytes]]) -> None:
    model = transmit(TASK.load_model(), wnr_db=4.0, seed=0).received.train()
    before = snapshot(model.state_dict())
    noise_power_from_batch_norm(model, TASK.tuning_examples(20, 0).inputs)
    assert snapshot(model.state_dict()) == before
    assert all(module.training for module in model.modules())


def test_no_batch_norm_or_none_that_a_noisy_layer_feeds() -> None:
    with pytest.raises(InvalidConfig, match="no BatchNorm"):
        noise_power_from_batch_norm(nn.Linear(3, 2), torch.rand(10, 3))
    behind_relu = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.BatchNorm1d(2))
    with pytest.raises(InvalidConfig, match="no mismatch to measure"):
        noise_power_from_batch_norm(behind_relu, torch.rand(10, 3))


def test_activations_that_overflow() -> None:
    network = one_layer(4, 4)
    with torch.no_grad():
        network[0].weight.fill_(3e38)
    with pytest.raises(InvalidWeights, match="what enters 1 is not finite"):
        noise_power_from_batch_norm(network, torch.ones(10, 4))
