"""Calibration where noise differs between output channels, as on a fading link."""

import copy

import pytest
import torch
from torch import Tensor, nn

from quietnn.observation import observe
from quietnn.repairs.affine import AffineDenoiser, WeightwiseMap
from quietnn.repairs.batchnorm.calibrate import calibrate, re_estimate
from quietnn.repairs.batchnorm.parameter_noise import by_output, parameter_noise
from quietnn.targets import noisy_weights

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = (torch.randn(300, 3, 1, 1, generator=GENERATOR) + torch.randn(300, 3, 6, 6, generator=GENERATOR)).double()
LOST = 2
"""The output channel of the first layer that a fade took."""


def network() -> nn.Sequential:
    """Two convolutions, one of them grouped and with a bias, each with its BatchNorm fitted to `INPUTS`."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8, eps=1e-12),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.BatchNorm2d(8, eps=1e-12),
    )
    return re_estimate(layers.double().eval(), INPUTS).model  # type: ignore[return-value]


def faded(model: nn.Module, lost: float = 10.0) -> tuple[nn.Sequential, dict[str, Tensor]]:
    """What arrives, and the noise of every weight: little, and much more on one channel of the first layer."""
    noise = {name: torch.full_like(tensor, 1e-3) for name, tensor in noisy_weights(model).items()}
    noise["0.weight"][LOST] = lost
    received, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    for name, tensor in noisy_weights(received).items():
        tensor += noise[name].sqrt() * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return received, noise  # type: ignore[return-value]


def scaled(model: nn.Module, factors: dict[str, Tensor]) -> tuple[nn.Module, dict[str, AffineDenoiser]]:
    """The model with each weight multiplied, and the denoisers that did it."""
    result = copy.deepcopy(model)
    for name, tensor in noisy_weights(result).items():
        tensor *= factors[name]
    members = {
        layer: {name: WeightwiseMap(own, 0.0) for name, own in factors.items() if name.startswith(layer)}
        for layer in "03"
    }
    return result, {layer: AffineDenoiser(1.0, 0.0, own) for layer, own in members.items()}


def test_a_lost_channel_leaves_the_others_alone() -> None:
    received, noise = faded(network())
    alike = {name: torch.full_like(own, 1e-3) for name, own in noise.items()}
    expected = calibrate(received, INPUTS[:100], noise_variance=alike).model
    result = calibrate(received, INPUTS[:100], noise_variance=noise).model
    others = [channel for channel in range(8) if channel != LOST]
    for name in ("running_mean", "running_var"):
        found, wanted = (model[1].get_buffer(name)[others] for model in (result, expected))  # type: ignore[index]
        torch.testing.assert_close(found, wanted, rtol=0.2, atol=0.05)
    sample = re_estimate(received, INPUTS[:100]).model
    assert float(result[1].running_var[LOST]) == pytest.approx(float(sample[1].running_var[LOST]), rel=0.3)  # type: ignore[index]


def test_one_lost_channel_of_eight_does_not_stand_for_all() -> None:
    """It is an eighth of what leaves the layer; the others have noise of 7 % or so."""
    received, noise = faded(network(), lost=1e4)
    report = calibrate(received, INPUTS[:100], noise_variance=noise).details["report"]
    assert 1 / 8 < report.layers[0].noise_share < 0.3
    assert report.layers[1].upstream_share == pytest.approx(report.layers[0].noise_share)


def test_channels_shrunk_each_by_itself_are_calibrated_to_the_same_outputs() -> None:
    """BatchNorm undoes the scale of every channel; only the concentration, one for the layer, sees it."""
    torch.manual_seed(2)
    received, noise = faded(network())
    factors = {"0.weight": torch.rand(8, 1, 1, 1), "3.weight": torch.rand(8, 1, 1, 1)}
    factors = {name: own.double() + 0.01 for name, own in factors.items()}
    factors["3.bias"] = factors["3.weight"].flatten()
    shrunk, denoisers = scaled(received, factors)
    plain = calibrate(received, INPUTS[:100], noise_variance=noise).model
    result = calibrate(shrunk, INPUTS[:100], noise_variance=noise, denoisers=denoisers, groups="layerwise").model
    with torch.no_grad():
        assert float((result(INPUTS) - plain(INPUTS)).square().mean()) < 1e-2


def test_means_are_carried_through_each_channels_own_map() -> None:
    """With all inputs and hardly any noise, the statistics are those of the mapped layer."""
    torch.manual_seed(3)
    model = re_estimate(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)).double().eval(), INPUTS).model
    theta, rho = 0.5 + torch.rand(6, 1, 1, 1).double(), 0.1 * torch.randn(6, 1, 1, 1).double()
    maps = {
        "0.weight": WeightwiseMap(theta, rho),
        "0.bias": WeightwiseMap(torch.tensor([0.0, 1.0, 0.9, 0.8, 0.7, 0.6]).double(), torch.full((6,), 0.1).double()),
    }
    mapped = copy.deepcopy(model)
    for name, tensor in noisy_weights(mapped).items():
        maps[name](tensor, out=tensor)
    denoisers = {"0": AffineDenoiser(1.0, 0.0, maps)}
    result = calibrate(mapped, INPUTS, noise_variance=1e-12, denoisers=denoisers, groups="layerwise").model
    expected = re_estimate(mapped, INPUTS).model
    known = slice(1, 6)  # of a bias times zero nothing is left to judge it by
    torch.testing.assert_close(result[1].running_mean[known], expected[1].running_mean[known], rtol=1e-3, atol=1e-3)  # type: ignore[index]
    torch.testing.assert_close(result[1].running_var, expected[1].running_var, rtol=1e-2, atol=0)  # type: ignore[index]


def test_noise_that_hardly_differs_is_calibrated_much_as_noise_that_does_not() -> None:
    received, noise = faded(network(), lost=1e-3)
    nearly = {name: own * (1 + 1e-6 * torch.rand_like(own)) for name, own in noise.items()}
    one, each = (calibrate(received, INPUTS[:100], noise_variance=variance).model for variance in (1e-3, nearly))
    with torch.no_grad():  # one number sums the channels' noise, many average their shares
        assert float((each(INPUTS) - one(INPUTS)).square().mean()) < 1e-2


def test_equal_noise_is_one_number_and_bent_signal_counts_by_channel() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    same = {name: torch.full_like(own, 0.5) for name, own in noisy_weights(model).items()}
    assert [own.variance for own in parameter_noise(observe(model, noise_variance=same)).values()] == [0.5, 0.5]
    theta = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.0, 1.0]]).double()
    maps = {"0.weight": WeightwiseMap(theta, 0.0), "0.bias": WeightwiseMap(1.0, 0.0)}
    found = parameter_noise(
        observe(model, noise_variance=same), denoisers={"0": AffineDenoiser(1.0, 0.0, maps)}, groups="layerwise"
    )
    weight = found[id(model[0].weight)]
    power = float(model[0].weight.detach().double().var(correction=0)) / float(theta.mean())
    assert torch.as_tensor(weight.theta).tolist() == [0.5, 0.5, 1.0]
    assert torch.as_tensor(weight.variance).tolist() == pytest.approx([0.25 + power / 4, 0.125, 0.5])
    assert by_output(0.3, model[0].weight) == 0.3
