"""Noise that differs from weight to weight."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.errors import InfeasibleTemperatures
from quietnn.moments import WeightStatistics
from quietnn.noise import mean_noise
from quietnn.observation import Observation
from quietnn.repairs.affine import MMSE, Temperatures, weightwise_map
from quietnn.repairs.denoise import denoise
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.priors import told
from quietnn.repairs.temperatures.tune import tune
from quietnn.score import Score
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task
from quietnn.theory.family import Form

STATISTICS = WeightStatistics(mean=0.2, variance=0.5, num_weights=10)


def noisy(spread: float, *, seed: int = 0, count: int = 60_000) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, what is received of them, and the variance of each one's noise: log-normal around 0.3."""
    generator = torch.Generator().manual_seed(seed)
    weights = 0.2 + math.sqrt(0.5) * torch.randn(count, generator=generator)
    variances = 0.3 * torch.exp(spread * torch.randn(count, generator=generator))
    return weights, weights + variances.sqrt() * torch.randn(count, generator=generator), variances


@given(
    st.floats(0.0, 1.05),
    st.floats(-2.0, 2.0),
    st.floats(1e-6, 5.0),
    st.sampled_from(list(Form)),
)
def test_equal_noise_gives_the_map_of_the_group(lambda_prime: float, beta: float, noise: float, form: Form) -> None:
    temperatures = Temperatures(lambda_prime, beta)
    one = weightwise_map(temperatures, STATISTICS, noise, form=form)
    each = weightwise_map(temperatures, STATISTICS, torch.full((3,), noise, dtype=torch.float64), form=form)
    assert torch.as_tensor(each.theta).expand(3).tolist() == pytest.approx([one.theta] * 3, rel=1e-12)
    assert torch.as_tensor(each.rho).expand(3).tolist() == pytest.approx([one.rho] * 3, rel=1e-9, abs=1e-12)


def test_a_weight_without_noise_comes_back_and_a_lost_one_becomes_the_mean() -> None:
    estimate = weightwise_map(MMSE, STATISTICS, torch.tensor([0.0, 1e12]))(torch.tensor([7.0, 7.0]))
    assert estimate.tolist() == pytest.approx([7.0, 0.2])
    nothing = WeightStatistics(mean=0.2, variance=0.0, num_weights=10)
    assert weightwise_map(MMSE, nothing, torch.tensor([0.0, 1.0]))(torch.ones(2)).tolist() == pytest.approx([1.0, 0.2])


def test_the_noisiest_weight_sets_the_pole() -> None:
    weightwise_map(Temperatures(1.4), STATISTICS, torch.tensor([0.1, 1.0]))
    with pytest.raises(InfeasibleTemperatures):
        weightwise_map(Temperatures(1.4), STATISTICS, torch.tensor([0.1, 1.3]))


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_mmse_by_weight_is_better_than_mmse_at_the_mean_noise_and_as_good_as_predicted(spread: float) -> None:
    weights, received, variances = noisy(spread)
    known = {"whole": STATISTICS}
    by_weight = denoise(Observation(received, variances, statistics=known)).model
    at_mean = denoise(Observation(received, float(variances.mean()), statistics=known)).model
    error, error_at_mean = ((estimate - weights).square().mean().item() for estimate in (by_weight, at_mean))
    predicted = (0.5 * variances / (0.5 + variances)).mean().item()
    assert error < error_at_mean
    assert error == pytest.approx(predicted, rel=0.03)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_what_the_receiver_estimates_itself_is_no_worse_either(spread: float, seed: int) -> None:
    weights, received, variances = noisy(spread, seed=seed)
    by_weight = denoise(received, noise_variance=variances).model
    at_mean = denoise(received, noise_variance=float(variances.mean())).model
    error, error_at_mean = ((estimate - weights).square().mean().item() for estimate in (by_weight, at_mean))
    assert error <= error_at_mean * (1 + 1e-4)


def test_the_prior_is_found_under_heavy_tailed_noise() -> None:
    _, received, variances = noisy(3.0)
    mean, variance, _ = told(received, variances)
    assert mean == pytest.approx(0.2, abs=0.02)
    assert variance == pytest.approx(0.5, rel=0.05)


def small_and_large() -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]:
    """Two tensors of different scale with noise in proportion, as a memory makes it: clean, received, its variance."""
    generator = torch.Generator().manual_seed(0)
    noise = {"small": 1e-4, "large": 1.0}
    clean = {name: 10 * math.sqrt(v) * torch.randn(20_000, generator=generator) for name, v in noise.items()}
    received = {n: w + math.sqrt(noise[n]) * torch.randn(20_000, generator=generator) for n, w in clean.items()}
    return clean, received, noise


def test_tensors_are_pooled_by_size_not_by_how_little_noise_they_have() -> None:
    _, received, noise = small_and_large()
    assert GroupedWeights.of(received, noise).statistics["whole"].variance == pytest.approx(50.005, rel=0.05)


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_where_noise_follows_the_scale_of_a_tensor_small_weights_are_not_taken_for_large_ones(groups: str) -> None:
    clean, received, noise = small_and_large()
    estimate = denoise(received, noise_variance=noise, groups=groups).model
    for name, variance in noise.items():
        error = (estimate[name] - clean[name]).square().mean().item()
        assert error == pytest.approx(variance / 1.01, rel=0.03)


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
@pytest.mark.parametrize("task", ["digits", pytest.param("cifar10/resnet20", marks=pytest.mark.assets)])
@pytest.mark.parametrize(
    "channel",
    [
        "quantise:num_bits=2",
        "quantise:num_bits=3",
        "quantise:num_bits=2,per_channel=true",
        "quantise:num_bits=3,per_channel=true",
        "quantise:num_bits=3,dither=true",
        "truncate:num_bits=1",
        "pcm:seconds=86400",
        "pcm:seconds=86400,compensate=false",
        "reram:seconds=86400",
        "fading:wnr_db=10",
        "fading:wnr_db=-10,block=16",
        "protected:wnr_db=0",
        "digital:wnr_db=0",
        "digital:wnr_db=4",
        "digital:wnr_db=6",
    ],
)
def test_on_every_medium_mmse_that_knows_each_noise_is_no_worse_than_at_the_mean(
    channel: str, task: str, groups: str
) -> None:
    clean = noisy_weights(load_task(task).load_model())
    arrived = transmit(clean, channel=channel_named(channel), seed=1).at_unit_gain()
    means = arrived.noise_variance
    assert isinstance(means, dict)
    mean = mean_noise(means, clean)
    by_tensor = denoise(arrived.received, noise_variance=means, groups=groups).model
    at_mean = denoise(arrived.received, noise_variance=mean, groups=groups).model
    error, error_at_mean = (
        sum(float((estimate[name] - clean[name]).square().sum()) for name in clean) for estimate in (by_tensor, at_mean)
    )
    assert error <= error_at_mean * 1.0005


def test_equal_noise_by_tensor_changes_nothing() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
    same = dict.fromkeys(dict(network.named_parameters()), 0.01)
    for groups in ("whole", "layerwise"):
        one = denoise(network, noise_variance=0.01, groups=groups).model
        by_tensor = denoise(network, noise_variance=same, groups=groups).model
        for a, b in zip(one.parameters(), by_tensor.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


def test_noise_by_group_name_and_in_place() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
    before = network[0].weight.detach().clone()
    denoise(network, noise_variance={"0": 0.0, "1": 1e6}, groups="layerwise", in_place=True)
    assert torch.equal(network[0].weight, before)
    assert network[1].weight.std() < 1e-8  # nothing is left but the mean


def test_sixteen_bits_are_rounded_once() -> None:
    received = torch.tensor([1.0, 2.0, -3.0], dtype=torch.bfloat16)
    noise = torch.tensor([0.1, 0.2, 0.3])
    estimate = weightwise_map(MMSE, STATISTICS, noise)(received)
    wide = weightwise_map(MMSE, STATISTICS, noise)(received.float())
    assert torch.equal(estimate, wide.bfloat16())


def test_a_reception_tells_the_mean_noise_of_model_and_group() -> None:
    weights = {"a.weight": torch.randn(30), "b.weight": torch.randn(10)}
    by_group = GroupedWeights.of(weights, {"a.weight": 1.0, "b.weight": torch.full((10,), 5.0)}, groups="layerwise")
    assert by_group.noise_variance == 2.0
    assert (by_group.group_noise("a"), by_group.group_noise("b")) == (1.0, 5.0)


def test_temperatures_are_tuned_under_noise_by_layer() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
    noise = {"0": 0.001, "1": 0.01}
    result = tune(
        network, score=lambda model: Score(0.5, model[1].weight.detach().abs().mean().item(), 10), noise_variance=noise
    )
    estimate = denoise(network, noise_variance=noise, temperatures=result.details["temperatures"]).model
    assert estimate[1].weight.abs().mean() < network[1].weight.abs().mean()
    assert torch.equal(estimate[1].weight, result.model[1].weight)
