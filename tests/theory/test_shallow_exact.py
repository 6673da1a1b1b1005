"""The quadrature behind the shallow network's exact numbers, and Lemma 1."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad

from quietnn.errors import QuietnnError
from quietnn.theory.shallow import ShallowNetwork
from quietnn.theory.shallow_exact import mean_output_exact, mean_output_taylor

PAPER = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)
Rule = tuple[NDArray[np.float64], NDArray[np.float64]]


def gauss_hermite(num_nodes: int) -> Rule:
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    return nodes, weights / math.sqrt(2 * math.pi)


def equispaced(num_nodes: int) -> Rule:
    nodes = np.linspace(-9.0, 9.0, num_nodes)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def by_hand(network: ShallowNetwork, theta: float, rho: float, rule: Rule, num_x: int) -> float:
    """The error as an integral over u, its noise and x, without the conditional mean that saves one of them."""
    nodes, weights = rule
    sw, s, n = network.weight_variance, network.received_variance, network.num_hidden
    u, du = math.sqrt(sw) * nodes[:, None], math.sqrt(network.noise_variance) * nodes
    total = 0.0
    for at, x_weight in zip(*np.polynomial.legendre.leggauss(num_x), strict=True):
        x = network.input_limit * (at + 1) / 2
        t, t_hat = np.tanh(u * x), np.tanh((theta * (u + du) + rho) * x)
        own = (theta**2 * s + rho**2) * t_hat**2 - 2 * theta * sw * t * t_hat + sw * t**2
        total += x_weight / 2 * n * (weights @ own @ weights + (n - 1) * (rho * (weights @ t_hat @ weights)) ** 2)
    return float(total)


@pytest.mark.parametrize("theta_rho", [(1.0, 0.0), (0.7, 0.0), (0.8, 0.6)])
def test_gauss_hermite_agrees_at_the_papers_setting(theta_rho: tuple[float, float]) -> None:
    assert PAPER.error(*theta_rho) == pytest.approx(by_hand(PAPER, *theta_rho, gauss_hermite(64), 16), rel=1e-11)


@pytest.mark.parametrize(("sw", "sz", "c"), [(0.2, 0.1, 0.1), (1.0, 2.0, 1.0), (2.0, 2.0, 2.0)])
def test_quadrature_has_converged(sw: float, sz: float, c: float) -> None:
    network = ShallowNetwork(sw, sz, 7, c)
    assert network.error(0.9, 0.4) == pytest.approx(by_hand(network, 0.9, 0.4, equispaced(480), 48), rel=1e-9)


def test_one_hidden_unit_against_adaptive_integration() -> None:
    """N = 1, rho = 0: integrate `E t_hat^2` over one Gaussian with scipy instead of our nodes."""
    network = ShallowNetwork(1.0, 1e-12, 1, 0.5)  # without noise the error of theta is E (theta t(theta u) - t(u))^2

    def inner(x: float) -> float:
        def integrand(u: float) -> float:
            value = 0.36 * np.tanh(0.6 * u * x) ** 2 - 1.2 * np.tanh(0.6 * u * x) * np.tanh(u * x)
            return float((value + np.tanh(u * x) ** 2) * np.exp(-u * u / 2) / math.sqrt(2 * math.pi))

        return float(quad(integrand, -10, 10, epsabs=1e-13)[0])

    expected = quad(inner, 0, 0.5, epsabs=1e-12)[0] / 0.5
    assert network.error(0.6, 0.0) == pytest.approx(expected, rel=1e-8)


def test_lemma_1_errs_by_the_fourth_order_in_the_noise() -> None:
    u, v, x = [0.9, -0.4, 1.6], [1.2, 0.7, -0.5], 0.8
    gaps = [
        abs(
            mean_output_taylor(u, v, x, theta=0.8, rho=0.1, noise_variance=noise_variance)
            - mean_output_exact(u, v, x, theta=0.8, rho=0.1, noise_variance=noise_variance)
        )
        for noise_variance in (0.04, 0.01)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(16, rel=0.1)  # a quarter of the variance, a sixteenth of the error


def test_lemma_1_refuses_a_negative_variance() -> None:
    for mean in (mean_output_taylor, mean_output_exact):
        with pytest.raises(QuietnnError, match="noise_variance is -1"):
            mean([1.0], [1.0], 0.1, theta=1.0, rho=0.0, noise_variance=-1)
