"""Gain and noise of any channel, measured and predicted, and errors beside a Gaussian."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.channels.moments import (
    NUM_BINS,
    PROBABILITIES,
    ErrorMoments,
    ErrorShape,
    effective_wnr_db,
    normal_points,
    pooled,
    weight_points,
)
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.observation import Observation
from quietnn.repairs.affine import mmse


def pair(gain: float, noise: float, *, count: int = 200_000) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = 0.1 + 0.5 * torch.randn(count, generator=generator)
    return weights, gain * (weights + noise**0.5 * torch.randn(count, generator=generator))


@given(st.floats(0.2, 3.0), st.floats(0.001, 2.0))
def test_a_gain_and_a_noise_are_told_apart(gain: float, noise: float) -> None:
    moments = ErrorMoments.of(*pair(gain, noise, count=20_000))
    assert moments.gain == pytest.approx(gain, rel=0.1)
    assert moments.noise_variance == pytest.approx(noise, rel=0.1)


def test_mmse_with_this_noise_is_the_best_linear_estimate() -> None:
    weights, received = pair(0.6, 0.3)
    moments = ErrorMoments.of(weights, received)
    clean = WeightStatistics.from_clean([weights])
    theta = mmse(clean, moments.noise_variance).theta / moments.gain
    assert theta == pytest.approx(moments.best_multiplier, rel=1e-6)
    slope = torch.linalg.lstsq((received - received.mean())[:, None].double(), (weights - weights.mean()).double())
    assert theta == pytest.approx(slope.solution.item(), rel=1e-6)


def test_the_clean_variance_is_what_is_left() -> None:
    weights, received = pair(0.6, 0.3)
    moments = ErrorMoments.of(weights, received)
    left = WeightStatistics.from_received([received / moments.gain], moments.noise_variance)
    assert left.variance == pytest.approx(float(weights.var()), rel=1e-4)


def test_additive_noise_is_uncorrelated_and_shrinking_is_not() -> None:
    assert abs(ErrorMoments.of(*pair(1.0, 0.3)).correlation) < 0.01
    assert ErrorMoments.of(*pair(0.5, 0.0)).correlation == pytest.approx(-1.0)
    assert ErrorMoments.of(*pair(0.5, 0.0)).mean_squared_error == pytest.approx(0.25 * (0.25 + 0.01), rel=0.01)


def test_where_nothing_arrives_all_is_noise() -> None:
    moments = ErrorMoments.of(torch.tensor([1.0, -1.0]), torch.zeros(2))
    assert (moments.gain, moments.noise_variance, moments.best_multiplier) == (1.0, 1.0, 0.0)


def test_the_law_of_total_variance() -> None:
    weights, received = pair(0.6, 0.3)
    predicted = ErrorMoments.predicted(weights, (0.6 * weights, torch.full_like(weights, 0.36 * 0.3)))
    measured = ErrorMoments.of(weights, received)
    assert predicted.gain == pytest.approx(measured.gain, rel=0.01)
    assert predicted.noise_variance == pytest.approx(measured.noise_variance, rel=0.01)


def test_pooling_is_the_same_as_taking_all_at_once() -> None:
    weights, received = pair(0.6, 0.3)
    parts = [ErrorMoments.of(weights[piece], received[piece]) for piece in (slice(0, 5000), slice(5000, None))]
    whole = ErrorMoments.of(weights, received)
    for name in ("weight_variance", "received_variance", "covariance", "gain", "mean_squared_error"):
        assert getattr(pooled(parts), name) == pytest.approx(getattr(whole, name), rel=1e-9)
    with pytest.raises(QuietnnError, match="no weights"):
        pooled([])


def test_points_have_the_moments_of_the_weights(shapes: dict[str, Tensor]) -> None:
    for tensor in shapes.values():
        points = weight_points(tensor)
        assert float(points.var()) == pytest.approx(float(tensor.var()), rel=0.01)
    assert float(normal_points().var()) == pytest.approx(1.0, rel=0.01)


def test_unit_gain_by_tensor() -> None:
    observation = Observation(
        {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2)}, 0.1, {"a.weight": 0.5, "b.weight": 2.0}
    )
    undone = observation.at_unit_gain()
    assert (undone.received["a.weight"][0, 0].item(), undone.received["b.weight"][0, 0].item()) == (2.0, 0.5)
    assert (undone.gain, undone.noise_variance) == (1.0, 0.1)
    assert observation.received["a.weight"][0, 0].item() == 1.0


def test_gaussian_and_uniform_errors_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    normal = ErrorShape.of(0.3 + 2 * torch.randn(200_000, generator=generator))
    uniform = ErrorShape.of(torch.rand(200_000, generator=generator))
    assert normal.variance == pytest.approx(4.0, rel=0.02)
    assert abs(normal.excess_kurtosis) < 0.05
    assert normal.distance < 0.005
    assert uniform.excess_kurtosis == pytest.approx(-1.2, abs=0.02)
    assert uniform.distance == pytest.approx(0.0572, abs=0.003)
    middle = PROBABILITIES.index(0.99)
    assert normal.quantiles[middle] == pytest.approx(2.326, abs=0.05)
    assert uniform.quantiles[middle] == pytest.approx(0.49 * 12**0.5, abs=0.02)
    assert (len(normal.histogram), sum(normal.histogram)) == (NUM_BINS, pytest.approx(1.0))


def test_no_error_has_no_shape() -> None:
    with pytest.raises(QuietnnError, match="no shape"):
        ErrorShape.of(torch.zeros(5))


def test_no_noise_at_all() -> None:
    assert effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, 0.0) == float("inf")
    with pytest.raises(InvalidConfig, match="names 'v'"):
        effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, {"v": 1.0})
