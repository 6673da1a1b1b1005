"""The structured prior: what it does to the squared error, to nothing at all, and to a network."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import quietnn
from quietnn import calibrate, transmit
from quietnn.channels.awgn import AWGN
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.batchnorm.calibrate import calibrate_structured
from quietnn.repairs.batchnorm.parameter_noise import parameter_noise
from quietnn.repairs.grouped import GroupedWeights, grouped
from quietnn.repairs.kernels import (
    KernelMap,
    _chi_square_over_degrees,
    believable_noise,
    kernel_map,
    structured_denoisers,
)
from quietnn.repairs.posterior import posterior
from quietnn.targets import noisy_weights, with_weights


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth_kernels(num_outputs: int, num_inputs: int, *, seed: int = 0) -> Tensor:
    """Kernels whose nine values share a level, of input channels that differ in power by a factor of a hundred."""
    level, rest = normal(num_outputs, num_inputs, 1, 1, seed=seed), normal(num_outputs, num_inputs, 3, 3, seed=seed + 1)
    power = torch.logspace(-1, 1, num_inputs, dtype=torch.float64).sqrt()[None, :, None, None]
    return (level + 0.3 * rest) * power


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    ).eval()  # fmt: skip


def test_at_lambda_zero_it_is_the_best_linear_estimate_of_its_prior() -> None:
    clean, noise = smooth_kernels(1024, 32), 4.0
    received = clean + noise**0.5 * normal(*clean.shape, seed=5)
    found = kernel_map(received, noise, lambda_prime=0.0)
    error = float((found(received) - clean).square().mean())
    plain = float(clean.square().mean()) / (float(clean.square().mean()) + noise)
    assert error < 0.6 * float((plain * received - clean).square().mean())
    # The estimate's own account of itself: sum of v e noise / (v e + noise).
    promised = float((found.power * noise / (found.power + noise)).mean())
    assert error == pytest.approx(promised, rel=0.05)


def test_structure_that_is_not_there_is_not_found() -> None:
    received = normal(64, 32, 3, 3) + 2.0 * normal(64, 32, 3, 3, seed=1)
    found = kernel_map(received, 4.0, lambda_prime=0.0)
    assert found.theta.std() < 0.02
    assert found.theta.mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("lambda_prime", [0.0, 0.9, 1.0])
def test_without_noise_nothing_changes(lambda_prime: float) -> None:
    clean = smooth_kernels(16, 8).float()
    assert torch.equal(kernel_map(clean, 0.0, lambda_prime=lambda_prime)(clean), clean)
    model = small_network()
    maps = structured_denoisers(Observation(model, 0.0))
    layers = GroupedWeights.of(noisy_weights(model), 0.0, groups="layerwise")
    for name, tensor in layers.estimate(maps).items():
        assert torch.equal(tensor, model.get_parameter(name).detach())


def test_ml_is_one_end_of_the_family() -> None:
    received = normal(16, 8, 3, 3).float()
    torch.testing.assert_close(kernel_map(received, 0.5, lambda_prime=1.0)(received), received)


@pytest.mark.parametrize("shape", [(8, 1, 3, 3), (8, 4, 1, 1), (8, 4, 5), (4, 2, 3, 3, 3), (1, 1, 1, 1)])
def test_any_convolution_has_a_map(shape: tuple[int, ...]) -> None:
    received = normal(*shape).to(torch.bfloat16)
    estimate = kernel_map(received, 0.3)(received)
    assert estimate.shape == received.shape
    assert estimate.dtype == received.dtype
    assert bool(torch.isfinite(estimate).all())


def test_weights_that_are_all_zero_or_all_noise_stay_finite() -> None:
    for received, noise in ((torch.zeros(4, 4, 3, 3), 0.0), (torch.zeros(4, 4, 3, 3), 1.0), (normal(4, 4, 3, 3), 9.0)):
        found = kernel_map(received, noise)
        assert bool(torch.isfinite(found(received)).all())
        assert math.isfinite(found.gain + found.rest_variance)


@pytest.mark.parametrize("misjudged", [2.0, 10.0, 1e6])
def test_more_noise_told_than_received_leaves_the_shape_of_the_weights(misjudged: float) -> None:
    weight = torch.randn(16, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    found = kernel_map(weight, misjudged)
    assert math.isfinite(found.gain)
    assert math.isfinite(found.rest_variance)
    scale = found(weight).norm() / weight.norm()
    assert torch.allclose(found(weight), scale * weight, rtol=1e-5)


@pytest.mark.parametrize("wnr_db", [-10.0, 0.0, 10.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_true_noise_is_believed_and_twice_as_much_where_it_cannot_be_is_not(wnr_db: float, seed: int) -> None:
    clean = {"quiet": normal(16, 16, 3, 3), "loud": 0.01 * normal(32, 16, 3, 3, seed=1)}
    received = transmit(clean, channel=AWGN(wnr_db=wnr_db), seed=seed)
    told = received.noise_variance
    assert believable_noise(received.received, told) == told
    lowered = believable_noise(received.received, 100 * told)
    assert isinstance(lowered, float)
    assert told <= lowered < 1.2 * told  # the loud tensor is nearly all noise, and shows it
    by_tensor = believable_noise(received.received, {"quiet": told, "loud": 100 * told})
    assert isinstance(by_tensor, dict)
    assert by_tensor["quiet"] == told
    assert told <= float(by_tensor["loud"]) < 1.2 * told


def test_noise_that_differs_within_a_convolution_leaves_it_as_it_came() -> None:
    model = small_network()
    noise: dict[str, float | Tensor] = dict.fromkeys(noisy_weights(model), 0.01)
    maps = structured_denoisers(Observation(model, {**noise, "0.weight": torch.full_like(model[0].weight, 0.01)}))
    weight = model[0].weight.detach()
    assert torch.equal(maps["0"].on("0.weight")(weight, None), weight)
    assert not torch.equal(structured_denoisers(Observation(model, noise))["0"].on("0.weight")(weight, None), weight)


def test_gain_and_rest_are_those_of_the_estimate() -> None:
    clean, noise = smooth_kernels(512, 64), 2.0
    received = clean + noise**0.5 * normal(*clean.shape, seed=7)
    found = kernel_map(received, noise)
    estimate = found(received)
    gain = float((estimate * clean).sum() / clean.square().sum())
    assert found.gain == pytest.approx(gain, rel=0.01)
    assert found.rest_variance == pytest.approx(float((estimate - gain * clean).square().mean()), rel=0.02)


def test_calibration_is_told_what_is_left() -> None:
    model = small_network()
    maps = structured_denoisers(Observation(model, 0.01))
    left = parameter_noise(Observation(model, 0.01), denoisers=maps, groups="layerwise")
    own = maps["0"].on("0.weight")
    assert isinstance(own, KernelMap)
    weight = left[id(model[0].weight)]
    assert (weight.theta, weight.variance) == (own.gain, own.rest_variance)
    assert left[id(model[0].bias)].variance == pytest.approx(0.01)  # biases and the head are as they came
    assert left[id(model[8].weight)].theta == 1.0


def test_a_network_is_structured_and_calibrated_and_its_user_keeps_the_original() -> None:
    received = transmit(small_network(), channel=AWGN(wnr_db=3.0), seed=1)
    before = copy.deepcopy(received.received.state_dict())
    maps = structured_denoisers(received)
    model = with_weights(received.received, grouped(received, "layerwise").estimate(maps))
    inputs = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = calibrate(model, inputs, noise_variance=received.noise_variance, denoisers=maps, groups="layerwise").model
    assert bool(torch.isfinite(result(inputs)).all())
    for name, tensor in received.received.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_convolution_without_a_batch_norm_behind_it_is_kept() -> None:
    """Nothing would give it back the scale that it lost; and the user's own network is not called."""
    calls = []
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    received = transmit(network, channel=AWGN(wnr_db=-3.0), seed=1)
    hook = received.received.register_forward_hook(lambda model, *_: calls.append(model))
    inputs = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = calibrate_structured(received, inputs).model
    hook.remove()
    assert not torch.equal(result[0].weight, received.received[0].weight)
    assert torch.equal(result[3].weight, received.received[3].weight)
    assert all(model is not received.received for model in calls)


def test_the_posterior_looks_at_it_as_a_start() -> None:
    received = transmit(small_network(), channel=AWGN(wnr_db=3.0), seed=1)
    inputs = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    known = Evidence(inputs, torch.arange(20) % 4)
    for evidence in (known, Evidence(mean_loss=known.loss_at, num_examples=20)):
        result = posterior(received, evidence)
        assert "structured" in result.details["held_out_loss"]
        assert result.passes <= 150


def tiny_tensors() -> nn.Sequential:
    """A network with tensors of 1, 2 and 4 weights, all small beside their noise."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2), nn.PReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1),
    )  # fmt: skip
    with torch.no_grad():
        for tensor in noisy_weights(network).values():
            tensor.mul_(1.0 if tensor.numel() > 4 else 1e-3)
    return network


def test_the_true_noise_is_believed_however_small_the_tensors_are() -> None:
    network = tiny_tensors()
    for seed in range(200):
        received = transmit(network, channel=AWGN(wnr_db=-6.0), seed=seed)
        told = received.noise_variance
        assert believable_noise(noisy_weights(received.received), told) == told
        by_tensor = dict.fromkeys(noisy_weights(network), told)
        assert believable_noise(noisy_weights(received.received), by_tensor) == by_tensor


@pytest.mark.parametrize("seed", range(20))
def test_noise_told_3_db_too_strong_is_lowered_by_the_tensors_that_are_nearly_all_noise(seed: int) -> None:
    network = tiny_tensors()
    network.append(nn.Linear(1, 400, bias=False))  # large enough to tell, and nearly empty
    with torch.no_grad():
        network[-1].weight.mul_(1e-3)
    received = transmit(network, channel=AWGN(wnr_db=-6.0), seed=seed)
    lowered = believable_noise(noisy_weights(received.received), 2 * received.noise_variance)
    assert received.noise_variance <= lowered < 1.6 * received.noise_variance


@pytest.mark.parametrize("tail", [1e-3, 1e-5])
@pytest.mark.parametrize("degrees", [1, 3, 10, 100, 10_000])
def test_the_quantile_of_chi_square_is_on_the_safe_side(degrees: int, tail: float) -> None:
    half = torch.tensor(degrees / 2, dtype=torch.float64)
    exact = torch.special.gammainc(half, half * _chi_square_over_degrees(degrees, tail))
    assert float(exact) <= 1.001 * tail
    if degrees >= 100:
        assert float(exact) == pytest.approx(tail, rel=0.1)


def test_a_tensor_without_entries_contradicts_nothing() -> None:
    assert believable_noise({"none": torch.zeros(0), "some": torch.ones(100)}, 0.5) == 0.5


def test_the_true_noise_is_believed_however_many_tensors_there_are() -> None:
    weights = {str(index): tensor for index, tensor in enumerate(normal(20_000, 20))}
    assert believable_noise(weights, 1.0) == 1.0


def test_weights_that_came_with_a_gain_are_repaired_too() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 3)).eval()
    observation = transmit(network, channel="quantise:num_bits=3", seed=0)
    assert observation.at_unit_gain().as_received is not None
    repaired = quietnn.calibrate_structured(observation, torch.rand(40, 1, 8, 8))
    assert not torch.equal(repaired.model[1].running_var, network[1].running_var)


def test_a_channel_that_looks_empty_by_chance_is_kept_where_few_weights_tell_of_it() -> None:
    generator = torch.Generator().manual_seed(0)
    for outputs, least, most in ((8, 0.2, 1.0), (4096, 0.0, 0.2)):
        weights = torch.randn(outputs, 64, 3, 3, generator=generator)
        weights[:, ::2] *= 0.01
        received = weights + torch.randn(weights.shape, generator=generator)
        kept = kernel_map(received, 1.0).theta[::2].mean()
        assert least < kept < most
