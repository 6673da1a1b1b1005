"""Quantisation and truncation against torch's own, and their error against predictions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from quietnn.channels.moments import ErrorMoments, normal_points, weight_points
from quietnn.channels.quantisation import MantissaTruncation, Quantisation
from quietnn.errors import InvalidConfig
from quietnn.noise import mean_of

BITS = (2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize("num_bits", BITS)
def test_it_is_what_torch_calls_fake_quantisation(num_bits: int, shapes: dict[str, Tensor]) -> None:
    limit = 2 ** (num_bits - 1) - 1
    for name, tensor in shapes.items():
        ours = Quantisation(num_bits).transmit({name: tensor}, seed=0).received[name]
        scale = float(tensor.abs().max()) / limit
        theirs = torch.fake_quantize_per_tensor_affine(tensor, scale, 0, -limit, limit)
        # they multiply by 1 / scale: a weight in the middle between two levels may go either way
        assert ((ours - theirs).abs() < 1e-6).float().mean() > 0.9999
        ours = Quantisation(num_bits, per_channel=True).transmit({name: tensor}, seed=0).received[name]
        scales = tensor.flatten(1).abs().amax(1) / limit
        theirs = torch.fake_quantize_per_channel_affine(
            tensor, scales, torch.zeros(64, dtype=torch.int32), 0, -limit, limit
        )
        assert ((ours - theirs).abs() < 1e-6).float().mean() > 0.9999


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("clip", ["max", "mse"])
@pytest.mark.parametrize("dither", [False, True])
@pytest.mark.parametrize("num_bits", BITS)
def test_gain_and_noise_are_predicted_by_integrating_over_the_weights(
    num_bits: int, dither: bool, clip: str, per_channel: bool, shapes: dict[str, Tensor]
) -> None:
    channel = Quantisation(num_bits, per_channel=per_channel, dither=dither, clip=clip)
    observation = channel.transmit(shapes, seed=3)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        measured, predicted = ErrorMoments.of(tensor, observation.received[name]), channel.predict(tensor)
        assert predicted.num_weights == tensor.numel()
        assert predicted.mean_squared_error == pytest.approx(measured.mean_squared_error, rel=0.05)
        assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)
        assert predicted.gain == pytest.approx(measured.gain, rel=0.05)
        assert predicted.noise_variance == pytest.approx(mean_of(observation.noise_variance[name]), rel=0.05)


@pytest.mark.parametrize("num_bits", BITS)
def test_a_gaussian_integral_predicts_gaussian_weights(num_bits: int, shapes: dict[str, Tensor]) -> None:
    channel, tensor = Quantisation(num_bits), shapes["gaussian"]
    measured = ErrorMoments.of(tensor, channel.transmit({"w": tensor}, seed=0).received["w"])
    points = 0.05 * normal_points()
    predicted = ErrorMoments.predicted(points, channel.conditional(points, channel.steps(tensor).double()))
    assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)


def test_at_two_bits_the_usual_rule_is_far_off(shapes: dict[str, Tensor]) -> None:
    channel, tensor = Quantisation(2), shapes["gaussian"]
    measured = ErrorMoments.of(tensor, channel.transmit({"w": tensor}, seed=0).received["w"])
    rule = float(channel.steps(tensor)) ** 2 / 12
    assert not 0.7 < measured.mean_squared_error / rule < 1.4
    assert measured.correlation < -0.5
    fine = Quantisation(8)
    measured = ErrorMoments.of(tensor, fine.transmit({"w": tensor}, seed=0).received["w"])
    assert measured.mean_squared_error == pytest.approx(float(fine.steps(tensor)) ** 2 / 12, rel=0.03)
    assert abs(measured.correlation) < 0.02


@pytest.mark.parametrize("num_bits", [2, 3])
def test_the_best_step_needs_no_multiplier(num_bits: int, shapes: dict[str, Tensor]) -> None:
    """At the step of least error `E[(r - w) r] = 0`: the best linear estimate is r itself."""
    tensor = shapes["gaussian"]
    for clip, apart in (("mse", 0.03), ("max", 10.0)):
        received = Quantisation(num_bits, clip=clip).transmit({"w": tensor}, seed=0).received["w"]
        assert abs(ErrorMoments.of(tensor, received).best_multiplier - 1.0) < apart
    assert (
        ErrorMoments.of(tensor, Quantisation(num_bits).transmit({"w": tensor}, seed=0).received["w"]).best_multiplier
        < 0.9
    )


def test_dither_makes_the_error_uniform_and_independent(shapes: dict[str, Tensor]) -> None:
    channel, tensor = Quantisation(2, dither=True), shapes["gaussian"]
    observation = channel.transmit({"w": tensor}, seed=5)
    step, error = float(channel.steps(tensor)), observation.received["w"] - tensor
    assert error.abs().max() <= step / 2 * 1.0001
    assert float(error.square().mean()) == pytest.approx(step**2 / 12, rel=0.03)
    assert abs(torch.corrcoef(torch.stack([error.flatten(), tensor.flatten()]))[0, 1].item()) < 0.03
    again, other = (channel.transmit({"w": tensor}, seed=seed).received["w"] for seed in (5, 6))
    assert torch.equal(again, observation.received["w"])
    assert not torch.equal(other, again)


def test_channels_have_their_own_noise(shapes: dict[str, Tensor]) -> None:
    observation = Quantisation(3, per_channel=True).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    noise = observation.noise_variance["channels"]
    assert isinstance(noise, Tensor)
    assert noise.shape == (64, 1, 1, 1)
    assert noise.max() > 4 * noise.min()
    for name, tensor in shapes.items():
        measured = ErrorMoments.of(tensor, observation.received[name])
        assert mean_of(observation.noise_variance[name]) == pytest.approx(measured.noise_variance, rel=0.01)


def test_zeros_and_single_weights_survive() -> None:
    weights = {"zeros": torch.zeros(5), "one": torch.tensor([0.7]), "half": torch.tensor([0.5, -1.0]).half()}
    for per_channel in (False, True):
        observation = Quantisation(4, per_channel=per_channel).transmit(weights, seed=0)
        assert torch.equal(observation.received["zeros"], weights["zeros"])
        assert observation.received["one"].item() == pytest.approx(0.7)
        assert observation.received["half"].dtype == torch.float16


def test_bad_settings_are_refused() -> None:
    for make in (lambda: Quantisation(1), lambda: Quantisation(4, clip="best"), lambda: MantissaTruncation(23)):
        with pytest.raises(InvalidConfig):
            make()


def test_truncation_to_nearest_is_bfloat16(shapes: dict[str, Tensor]) -> None:
    channel = MantissaTruncation(7, rounding="nearest")
    for name, tensor in shapes.items():
        assert torch.equal(channel.transmit({name: tensor}, seed=0).received[name], tensor.bfloat16().float())


@pytest.mark.parametrize("num_bits", [0, 1, 3, 7])
@pytest.mark.parametrize("rounding", ["truncate", "nearest"])
def test_the_error_of_truncation_is_predicted(num_bits: int, rounding: str, shapes: dict[str, Tensor]) -> None:
    channel = MantissaTruncation(num_bits, rounding)
    for name, tensor in shapes.items():
        observation = channel.transmit({name: tensor}, seed=0)
        assert isinstance(observation.noise_variance, dict)
        points = weight_points(tensor).float()
        predicted = ErrorMoments.of(points, channel.shorten(points))
        assert predicted.noise_variance == pytest.approx(mean_of(observation.noise_variance[name]), rel=0.05)
        assert predicted.mean_squared_error == pytest.approx(
            ErrorMoments.of(tensor, observation.received[name]).mean_squared_error, rel=0.05
        )


def test_cutting_shrinks_and_rounding_does_not(shapes: dict[str, Tensor]) -> None:
    for tensor in shapes.values():
        gains = [
            ErrorMoments.of(tensor, MantissaTruncation(1, rounding).shorten(tensor)).gain
            for rounding in ("truncate", "nearest")
        ]
        assert gains[0] < 0.9
        assert gains[1] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("make", [lambda: Quantisation(2.5), lambda: MantissaTruncation(1.5)])  # type: ignore[arg-type]
def test_half_a_bit_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidConfig, match="num_bits"):
        make()
