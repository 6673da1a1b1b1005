"""Unequal protection and the coded reference."""

import math

import pytest
import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Medium
from quietnn.channels.digital import CodedDigital, bits_per_weight
from quietnn.channels.fading import BlockFading
from quietnn.channels.moments import ErrorMoments, weight_points
from quietnn.channels.pcm import PCM
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.repetition import Repetition
from quietnn.channels.reram import ReRAM
from quietnn.channels.truncation import MantissaTruncation
from quietnn.errors import InvalidConfig
from quietnn.noise import mean_of


def test_copies_divide_the_noise_of_what_is_protected(shapes: dict[str, Tensor]) -> None:
    medium = Repetition(AWGN(noise_variance=0.01), {"gauss*": 4, "*": 1})
    observation = medium.transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        told = mean_of(observation.noise_variance[name])
        assert told == pytest.approx(0.01 / (4 if name == "gaussian" else 1))
        assert float((observation.received[name] - tensor).square().mean()) == pytest.approx(told, rel=0.05)


def test_copies_of_unequal_noise_are_weighed(shapes: dict[str, Tensor]) -> None:
    observation = Repetition(BlockFading(6.0, block=32), {"*": 3}).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        ratio = (observation.received[name] - tensor).double().square() / observation.noise_variance[name]
        assert float(ratio.mean()) == pytest.approx(1.0, rel=0.05)


def test_the_rate_counts_every_copy(shapes: dict[str, Tensor]) -> None:
    medium = Repetition(AWGN(noise_variance=0.01), {"gaussian": 5})
    assert medium.rate(shapes) == pytest.approx(2.0)
    assert medium.rate({"other": torch.zeros(3)}) == 1.0


def test_at_equal_channel_uses_total_squared_error_favours_nobody_but_a_weighed_one_does(
    shapes: dict[str, Tensor],
) -> None:
    """Protecting a tensor whose errors count more beats spreading the same uses evenly."""
    protected = Repetition(AWGN(noise_variance=0.01), {"gaussian": 5})
    even = AWGN(noise_variance=0.01 / protected.rate(shapes))
    importance = {"gaussian": 10.0, "laplace": 1.0, "uniform": 1.0, "channels": 1.0}

    def harm(medium: AWGN | Repetition) -> float:
        received = medium.transmit(shapes, seed=0).received
        return sum(importance[name] * float((received[name] - shapes[name]).square().mean()) for name in shapes)

    assert harm(protected) < harm(even)


def test_less_than_once_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="0 times"):
        Repetition(AWGN(noise_variance=1.0), {"a": 0})


@pytest.mark.parametrize("medium", [Quantisation(3), PCM(60.0), ReRAM(), MantissaTruncation(2), CodedDigital(6.0)])
def test_an_error_that_every_copy_repeats_is_refused(medium: Medium, shapes: dict[str, Tensor]) -> None:
    with pytest.raises(InvalidConfig, match="the same error in every copy"):
        Repetition(medium, {"*": 4}).transmit(shapes, seed=0)


@pytest.mark.parametrize("wnr_db", [0.0, 6.0, 15.0, 30.0])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_the_code_spends_the_capacity_and_no_more(wnr_db: float, per_tensor: bool, shapes: dict[str, Tensor]) -> None:
    medium = CodedDigital(wnr_db, per_tensor)
    bits = bits_per_weight(shapes, medium.steps(shapes))
    assert bits <= medium.capacity
    assert bits == pytest.approx(medium.capacity, rel=0.02)


def test_against_the_bound_for_gaussian_weights() -> None:
    """Scalar quantisation at high rate loses 1.53 dB (a quarter bit); at any rate it stays above Shannon's bound."""
    weights = {"w": torch.randn(100_000, generator=torch.Generator().manual_seed(0))}
    for wnr_db in (5.0, 15.0, 30.0):
        received = CodedDigital(wnr_db).transmit(weights, seed=0).received["w"]
        loss_db = 10 * math.log10(float((received - weights["w"]).square().mean()) * (1 + 10 ** (wnr_db / 10)))
        assert 0.0 < loss_db < 2.0
    assert loss_db == pytest.approx(1.53, abs=0.05)


@pytest.mark.parametrize("wnr_db", [0.0, 6.0, 15.0])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_its_error_is_predicted_from_quantiles_of_the_weights(
    wnr_db: float, per_tensor: bool, shapes: dict[str, Tensor]
) -> None:
    medium = CodedDigital(wnr_db, per_tensor)
    steps, observation = medium.steps(shapes), medium.transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        points = weight_points(tensor)
        levels = (points / steps[name]).round() * steps[name]
        predicted = ErrorMoments.predicted(points, (levels, torch.zeros(1)))  # a factor on the levels changes nothing
        assert predicted.noise_variance == pytest.approx(mean_of(observation.noise_variance[name]), rel=0.05)


def test_one_step_for_the_model_has_the_least_error_and_starves_small_layers() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {
        "large": torch.randn(20_000, generator=generator),
        "small": 0.1 * torch.randn(20_000, generator=generator),
    }
    errors = {}
    for per_tensor in (False, True):
        received = CodedDigital(6.0, per_tensor).transmit(weights, seed=0).received
        errors[per_tensor] = {
            name: float((received[name] - tensor).square().mean()) for name, tensor in weights.items()
        }
    assert sum(errors[False].values()) < sum(errors[True].values())
    assert errors[False]["small"] > 3 * errors[True]["small"]
