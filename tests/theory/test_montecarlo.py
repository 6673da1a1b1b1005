"""Closed form and quadrature within four standard errors of simulation; the printed forms are not."""

import numpy as np
import pytest

from quietnn.errors import QuietnnError
from quietnn.theory.montecarlo import Estimate, simulate_mean_output, simulate_quadratic, simulate_shallow
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.theory.shallow import ShallowNetwork, mean_output_exact


@pytest.mark.parametrize("number", range(10))
def test_quadratic_closed_form_at_ten_random_settings(number: int) -> None:
    rng = np.random.default_rng([17, number])
    network = QuadraticNetwork(
        rng.uniform(0.2, 3.0), rng.uniform(0.1, 3.0), int(rng.integers(1, 12)), rng.uniform(-1.0, 1.0)
    )
    theta, rho = rng.uniform(0.0, 1.3), rng.uniform(-1.5, 1.5)
    estimate = simulate_quadratic(network, theta, rho, seed=number, num_samples=200_000)
    assert abs(estimate.z_score(network.error(theta, rho))) < 4


@pytest.mark.parametrize("number", range(10))
def test_shallow_quadrature_at_ten_random_settings(number: int) -> None:
    rng = np.random.default_rng([18, number])
    network = ShallowNetwork(
        rng.uniform(0.2, 3.0), rng.uniform(0.1, 3.0), int(rng.integers(1, 13)), rng.uniform(0.05, 1.5)
    )
    theta, rho = rng.uniform(0.0, 1.3), rng.uniform(-1.0, 1.0)
    estimate = simulate_shallow(network, theta, rho, seed=number, num_samples=100_000)
    assert abs(estimate.z_score(network.error(theta, rho))) < 4


@pytest.mark.parametrize(("offset", "dimension"), [(0.5, 3), (-0.5, 8), (1.0, 5), (-1.5, 4)])
def test_printed_constant_of_theorem_1_fails(offset: float, dimension: int) -> None:
    printed = QuadraticNetwork(2.25, 1.0, dimension, offset, constants="printed")
    corrected = QuadraticNetwork(2.25, 1.0, dimension, offset)
    estimate = simulate_quadratic(corrected, 1.0, 0.0, seed=5, num_samples=1_000_000)
    assert abs(estimate.z_score(printed.ml_error)) > 4
    assert abs(estimate.z_score(corrected.ml_error)) < 4


def test_printed_form_of_theorem_2_fails_at_small_c() -> None:
    network = ShallowNetwork(1.0, 0.5, 10, 0.1)
    estimate = simulate_shallow(network, [1.0, 0.5**0.5], 0.0, seed=5, num_samples=200_000)
    for k, theta in enumerate((1.0, 0.5**0.5)):
        one = Estimate(estimate.mean[k], estimate.standard_error[k], estimate.num_samples)
        assert abs(one.z_score(network.error(theta, 0.0, "printed"))) > 4
        assert abs(one.z_score(network.error(theta, 0.0))) < 4


def test_mean_output_matches_the_exact_mean() -> None:
    u, v = [0.9, -0.4, 1.6], [1.2, 0.7, -0.5]
    estimate = simulate_mean_output(u, v, 0.7, theta=0.8, rho=0.2, noise_variance=0.5, seed=3, num_samples=200_000)
    exact = mean_output_exact(u, v, 0.7, theta=0.8, rho=0.2, noise_variance=0.5)
    assert abs(estimate.z_score(exact)) < 4


def test_batches_merge_into_the_plain_mean_and_standard_error() -> None:
    network = QuadraticNetwork(1.0, 1.0, 2**17, 0.0)  # two samples to a batch
    whole = simulate_quadratic(network, 1.0, 0.0, seed=1, num_samples=5)
    rng = np.random.default_rng(1)
    values: list[float] = []
    for size in (2, 2, 1):
        x = rng.uniform(-1, 1, (size, 2**17))
        w, z = rng.standard_normal((size, 2**17)), rng.standard_normal((size, 2**17))
        values.extend((((w + z) ** 2 - w**2) * x**2).sum(axis=1) ** 2)
    assert whole.mean == pytest.approx(np.mean(values))
    assert whole.standard_error == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))


def test_same_seed_same_numbers_and_another_seed_others() -> None:
    network = ShallowNetwork(1.0, 0.5, 3, 0.4)
    first, again, other = (simulate_shallow(network, 1.0, 0.0, seed=s, num_samples=500) for s in (4, 4, 5))
    assert first == again
    assert first.mean != other.mean


def test_points_of_a_surface_share_their_draws() -> None:
    network = ShallowNetwork(1.0, 0.5, 3, 0.4)
    grid = simulate_shallow(network, np.array([[0.5], [1.0]]), np.array([0.0, 0.3]), seed=2, num_samples=500)
    assert grid.mean.shape == grid.standard_error.shape == (2, 2)
    assert grid.mean[1, 0] == pytest.approx(simulate_shallow(network, 1.0, 0.0, seed=2, num_samples=500).mean)


def test_z_score_without_spread() -> None:
    exact = Estimate(mean=1.0, standard_error=0.0, num_samples=10)
    assert exact.z_score(1.0) == 0
    assert exact.z_score(2.0) == np.inf


def test_too_few_samples_and_bad_seeds_are_refused() -> None:
    network = QuadraticNetwork(1.0, 1.0, 2, 0.0)
    with pytest.raises(QuietnnError, match="num_samples is 1; it must be a whole number of at least 2"):
        simulate_quadratic(network, 1.0, 0.0, seed=0, num_samples=1)
    with pytest.raises(QuietnnError, match="seed is -1"):
        simulate_quadratic(network, 1.0, 0.0, seed=-1, num_samples=10)
