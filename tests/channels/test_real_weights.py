"""Media on the weights of a real network: the noise told is the noise measured."""

from dataclasses import replace

import pytest
from torch import Tensor

from quietnn.channels.error_shape import errors_at_unit_gain, told_variances
from quietnn.channels.moments import ErrorMoments, pooled, weight_points
from quietnn.channels.named import medium_named
from quietnn.channels.quantisation import Quantisation
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task

pytestmark = pytest.mark.assets

RANDOM = [
    "quantise:num_bits=3,dither=true",
    "pcm:seconds=0",
    "pcm:seconds=86400",
    "reram:seconds=1",
    "fading:wnr_db=15",
]


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return noisy_weights(load_task("cifar10/resnet20").load_model())


@pytest.mark.parametrize("channel", RANDOM)
def test_random_media_do_to_a_real_network_what_they_say(channel: str, weights: dict[str, Tensor]) -> None:
    observation = medium_named(channel).transmit(weights, seed=1)
    errors, told = errors_at_unit_gain(weights, observation), told_variances(weights, observation)
    assert float((errors.square() / told).mean()) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("num_bits", [2, 3, 4, 6, 8])
def test_quantisation_of_a_real_network_is_predicted_from_quantiles(num_bits: int, weights: dict[str, Tensor]) -> None:
    medium = Quantisation(num_bits)
    received = medium.transmit(weights, seed=0).received
    measured = pooled([ErrorMoments.of(tensor, received[name]) for name, tensor in weights.items()])
    predicted = []
    for tensor in weights.values():
        points = weight_points(tensor)
        own = ErrorMoments.predicted(points, medium.conditional(points, medium.steps(tensor).double()))
        predicted.append(replace(own, num_weights=tensor.numel()))
    whole = pooled(predicted)
    assert whole.mean_squared_error == pytest.approx(measured.mean_squared_error, rel=0.05)
    assert whole.noise_variance == pytest.approx(measured.noise_variance, rel=0.05)
    rule = sum(float(medium.steps(tensor)) ** 2 / 12 * tensor.numel() for tensor in weights.values())
    rule /= sum(tensor.numel() for tensor in weights.values())
    assert (abs(rule / measured.mean_squared_error - 1) > 1) == (num_bits == 2)  # the usual rule fails at 2 bits
