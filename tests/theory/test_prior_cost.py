"""The cost of a Gaussian prior, against priors whose best estimator is known."""

import numpy as np
import pytest
from scipy import integrate, stats

from quietnn.errors import QuietnnError
from quietnn.theory.prior_cost import prior_cost


@pytest.mark.parametrize("noise_variance", [0.1, 1.0, 10.0])
def test_gaussian_weights_pay_nothing(noise_variance: float) -> None:
    cost = prior_cost(np.random.default_rng(0).normal(0.3, 2.0, size=200_000), noise_variance)
    assert abs(cost["excess_kurtosis"]) < 0.05
    assert cost["distance"] < 0.01
    assert 0 <= cost["cost_db"] < 0.01


def test_two_valued_weights_have_the_error_of_the_tanh_estimator() -> None:
    noise_variance = 0.5
    cost = prior_cost(np.repeat([-1.0, 1.0], 1000), noise_variance)

    def error(noise: float) -> float:
        estimate = np.tanh((1.0 + noise) / noise_variance)
        return float((1.0 - estimate) ** 2 * stats.norm.pdf(noise, scale=noise_variance**0.5))

    expected, _ = integrate.quad(error, -8.0, 8.0)
    assert cost["best_error"] == pytest.approx(expected, rel=1e-4)
    assert cost["excess_kurtosis"] == pytest.approx(-2.0)


def test_heavy_tails_cost_more_than_gaussian_ones_and_simulation_agrees() -> None:
    generator = np.random.default_rng(1)
    weights = generator.laplace(size=100_000) / 2**0.5
    cost = prior_cost(weights, 1.0)
    assert cost["excess_kurtosis"] == pytest.approx(3.0, abs=0.5)
    assert 0.1 < cost["cost_db"] < 0.3
    received = weights + generator.normal(size=weights.size)
    linear = received * weights.var() / (weights.var() + 1.0)
    measured = float(((linear - weights) ** 2).mean())
    assert cost["linear_error"] == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("weights", "noise_variance"),
    [(np.zeros(5), 1.0), (np.ones(1), 1.0), (np.arange(4.0), 0.0), (np.arange(4.0), -1.0)],
)
def test_what_has_no_shape_to_judge_is_refused(weights: np.ndarray, noise_variance: float) -> None:
    with pytest.raises(QuietnnError):
        prior_cost(weights, noise_variance)
