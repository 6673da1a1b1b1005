"""Channels on the weights of real networks: the noise told is the noise measured, and torchao quantises as we do."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from quietnn.channels.digital import CodedDigital, SettledCode
from quietnn.channels.moments import ErrorMoments, errors_at_unit_gain, pooled, told_variances, weight_points
from quietnn.channels.quantisation import MantissaTruncation, Quantisation
from quietnn.channels.table import channel_named
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task
from quietnn.weights import Weights

pytestmark = pytest.mark.assets

RANDOM = [
    "awgn:wnr_db=6",
    "quantise:num_bits=3,dither=true",
    "quantise:num_bits=3,dither=true,per_channel=true",
    "pcm:seconds=0",
    "pcm:seconds=86400",
    "reram:seconds=1",
    "fading:wnr_db=15",
    "protected:wnr_db=6",
    pytest.param("aihwkit:seconds=3600", marks=pytest.mark.analog),
    pytest.param("sionna:wnr_db=15", marks=pytest.mark.wireless),
]
BITS = (2, 3, 4, 5, 6, 7, 8)


@pytest.fixture(scope="module", params=["resnet20", "resnet18"])
def weights(request: pytest.FixtureRequest) -> dict[str, Tensor]:
    return noisy_weights(load_task(f"cifar10/{request.param}").load_model())


def pooled_over(weights: Weights, points: Weights, received: Weights) -> ErrorMoments:
    """The moments of the model, each tensor's taken over points that stand for its weights."""
    found = {name: ErrorMoments.of(points[name], received[name]) for name in weights}
    return pooled([replace(own, num_weights=weights[name].numel()) for name, own in found.items()])


@pytest.mark.parametrize("channel", RANDOM)
def test_random_channels_do_to_a_real_network_what_they_say(channel: str, weights: dict[str, Tensor]) -> None:
    observation = channel_named(channel).transmit(weights, seed=1)
    errors, told = errors_at_unit_gain(weights, observation), told_variances(weights, observation)
    assert float((errors.square() / told).mean()) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("num_bits", "clip"), [*((bits, "max") for bits in BITS), (2, "mse"), (8, "mse")])
def test_quantisation_of_a_real_network_is_predicted_from_quantiles(
    num_bits: int, clip: str, per_channel: bool, weights: dict[str, Tensor]
) -> None:
    channel = Quantisation(num_bits, per_channel=per_channel, clip=clip)
    received = {name: channel.quantise(tensor, channel.steps(tensor)) for name, tensor in weights.items()}
    measured = pooled([ErrorMoments.of(tensor, received[name]) for name, tensor in weights.items()])
    predicted = pooled([channel.predict(tensor) for tensor in weights.values()])
    assert predicted.mean_squared_error == pytest.approx(measured.mean_squared_error, rel=0.05)
    assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)


@pytest.mark.parametrize("rounding", ["truncate", "nearest"])
@pytest.mark.parametrize("num_bits", [0, 1, 3, 7])
def test_truncation_of_a_real_network_is_predicted_from_quantiles(
    num_bits: int, rounding: str, weights: dict[str, Tensor]
) -> None:
    channel = MantissaTruncation(num_bits, rounding)
    measured = pooled([ErrorMoments.of(tensor, channel.shorten(tensor)) for tensor in weights.values()])
    points = {name: weight_points(tensor).float() for name, tensor in weights.items()}
    predicted = pooled_over(weights, points, {name: channel.shorten(own) for name, own in points.items()})
    assert predicted.mean_squared_error == pytest.approx(measured.mean_squared_error, rel=0.05)
    assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)


@pytest.mark.parametrize("per_tensor", [False, True])
def test_the_digital_reference_on_a_real_network_is_predicted_from_quantiles(
    per_tensor: bool, weights: dict[str, Tensor]
) -> None:
    channel = CodedDigital(8.0, per_tensor)
    received = channel.transmit(weights, seed=0).received
    measured = pooled([ErrorMoments.of(tensor, received[name]) for name, tensor in weights.items()])
    points = {name: weight_points(tensor) for name, tensor in weights.items()}
    predicted = pooled_over(weights, points, SettledCode(channel.steps(weights)).transmit(points, seed=0).received)
    assert predicted.mean_squared_error == pytest.approx(measured.mean_squared_error, rel=0.05)
    assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)


def test_the_usual_rule_fails_at_two_bits_and_holds_at_eight(weights: dict[str, Tensor]) -> None:
    for num_bits, holds in ((2, False), (8, True)):
        channel = Quantisation(num_bits)
        steps = {name: channel.steps(tensor) for name, tensor in weights.items()}
        total = sum(
            float((channel.quantise(tensor, steps[name]) - tensor).double().square().sum())
            for name, tensor in weights.items()
        )
        rule = sum(float(steps[name]) ** 2 / 12 * tensor.numel() for name, tensor in weights.items())
        assert (abs(rule / total - 1) < 0.1) == holds


@pytest.mark.torchao
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("num_bits", BITS)
def test_torchao_chooses_the_same_steps_and_levels(
    num_bits: int, per_channel: bool, weights: dict[str, Tensor]
) -> None:
    from torchao.quantization.quant_primitives import (
        MappingType,
        choose_qparams_affine,
        dequantize_affine,
        quantize_affine,
    )

    limit, channel = 2 ** (num_bits - 1) - 1, Quantisation(num_bits, per_channel=per_channel)
    for tensor in weights.values():
        block = (1, *tensor.shape[1:]) if per_channel and tensor.ndim > 1 else tuple(tensor.shape)
        scale, zero = choose_qparams_affine(tensor, MappingType.SYMMETRIC, block, torch.int8, -limit, limit, eps=1e-12)
        levels = quantize_affine(tensor, block, scale, zero, torch.int8, -limit, limit)
        theirs = dequantize_affine(levels, block, scale, zero, torch.int8, -limit, limit)
        steps = channel.steps(tensor)
        assert torch.allclose(steps.flatten(), scale.flatten(), rtol=1e-6)
        ours = channel.quantise(tensor, steps)
        # they multiply by 1 / scale: a weight in the middle between two levels may go either way
        assert ((ours - theirs).abs() < 1e-3 * steps).float().mean() > 0.9999
