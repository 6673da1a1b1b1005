"""Theorem 2: the printed form, the corrected leading order and the exact error by quadrature; Lemma 1."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar

from quietnn.errors import QuietnnError
from quietnn.theory.family import affine_coefficients
from quietnn.theory.shallow import Form, ShallowNetwork, mean_output_exact, mean_output_taylor

PAPER = ShallowNetwork(weight_variance=1.0, noise_variance=0.5, num_hidden=10, input_limit=0.4)
networks = st.builds(
    ShallowNetwork,
    weight_variance=st.floats(0.1, 4.0),
    noise_variance=st.floats(0.05, 4.0),
    num_hidden=st.integers(1, 20),
    input_limit=st.floats(0.02, 1.0),
)
Rule = tuple[NDArray[np.float64], NDArray[np.float64]]
FORMS: tuple[Form, ...] = ("exact", "leading", "printed", "printed_without_stray")


def test_surface_equals_its_points() -> None:
    theta, rho = np.array([[0.2], [1.0]]), np.array([-0.3, 0.0, 0.5])
    for form in FORMS:
        surface = PAPER.error(theta, rho, form)
        assert surface.shape == (2, 3)
        assert surface[1, 2] == pytest.approx(PAPER.error(1.0, 0.5, form), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 4.0), st.floats(0.05, 4.0), st.integers(1, 20), st.floats(0.0, 1.2), st.floats(-1.0, 1.0))
def test_leading_order_meets_quadrature_as_c_vanishes(
    sw: float, sz: float, num_hidden: int, theta: float, rho: float
) -> None:
    gaps = []
    for c in (0.01, 0.001):
        network = ShallowNetwork(sw, sz, num_hidden, c)
        scale = num_hidden**2 * c**2 * (sw + theta**2 * (sw + sz) + rho**2) ** 2
        gaps.append(abs(network.error(theta, rho, "leading") - network.error(theta, rho)) / scale)
    assert gaps[0] < 1e-2
    assert gaps[1] < 1e-4


@settings(max_examples=40, deadline=None)
@given(networks, st.sampled_from(["leading", "printed", "printed_without_stray"]))
def test_numerical_optimiser_finds_each_closed_form_optimum(network: ShallowNetwork, form: Form) -> None:
    scale, unit = network.error(0.0, 0.0, form), math.sqrt(network.weight_variance)
    start = (network.optimal_theta(form) * 1.2 + 0.05, 0.1)
    found = minimize(lambda p: network.error(p[0], p[1] * unit, form) / scale, start, method="Nelder-Mead",
                     options={"xatol": 1e-7, "fatol": 1e-15, "maxiter": 2000})  # fmt: skip
    assert abs(found.x[0]) == pytest.approx(network.optimal_theta(form), rel=1e-4, abs=1e-5)
    assert found.x[1] == pytest.approx(0.0, abs=2e-3 if form == "printed" else 1e-3)


@settings(max_examples=8, deadline=None)
@given(networks)
def test_exact_optimum_matches_a_numerical_optimiser(network: ShallowNetwork) -> None:
    found = minimize_scalar(lambda theta: network.error(theta, 0.0), bounds=(0.0, 1.5), method="bounded",
                            options={"xatol": 1e-9})  # fmt: skip
    theta = network.optimal_theta()
    assert theta == pytest.approx(found.x, rel=1e-5)
    offsets = np.linspace(0.0, 1.0, 6) * math.sqrt(network.weight_variance)
    assert network.error(theta, offsets).argmin() == 0
    # Saturation only shrinks: the exact optimum never lies above plain MMSE, so lambda'* <= 0.
    assert theta <= network.optimal_theta("leading") * (1 + 1e-9)


@given(networks)
def test_errors_and_gains_are_those_of_the_theorem(network: ShallowNetwork) -> None:
    sw, sz, s, c = network.weight_variance, network.noise_variance, network.received_variance, network.input_limit
    unit = network.num_hidden * c**2 / 3
    assert network.ml_error("printed") == pytest.approx(2 * unit * sw * sz)
    assert network.optimal_error("printed") == pytest.approx(2 * unit * sz * sw**2 / (sw + 2 * sz), rel=1e-6)
    assert network.ml_error("leading") == pytest.approx(unit * (s**2 - sw**2))
    assert network.gain("printed") == pytest.approx(2 * sz / (sw + 2 * sz), abs=1e-9)
    assert network.gain("leading") == pytest.approx(1 - (sw / s) ** 2, abs=1e-9)
    assert network.optimal_lambda_prime("leading") == pytest.approx(0.0, abs=1e-9)


@given(networks)
def test_printed_temperature_gives_the_printed_multiplier(network: ShallowNetwork) -> None:
    sw, sz = network.weight_variance, network.noise_variance
    printed = 1 / (2 * sw) + 1 / (2 * sz) - math.sqrt(1 / (4 * sz**2) + 1 / (2 * sw * sz))
    assert network.optimal_lambda_prime("printed") / (2 * sw) == pytest.approx(printed, rel=1e-6, abs=1e-9)
    theta, _ = affine_coefficients(network.optimal_lambda_prime("printed"), 0.0, weight_variance=sw, noise_variance=sz)
    assert theta == pytest.approx(network.optimal_theta("printed"))


def test_the_papers_numbers() -> None:
    assert PAPER.ml_error("printed") == pytest.approx(0.53, abs=5e-3)
    assert PAPER.optimal_error("printed") == pytest.approx(0.27, abs=5e-3)
    assert PAPER.ml_error() == pytest.approx(0.535, abs=5e-4)
    assert PAPER.error(PAPER.optimal_theta("printed"), 0.0) == pytest.approx(0.257, abs=5e-4)
    assert PAPER.optimal_theta() == pytest.approx(0.658, abs=5e-4)
    assert PAPER.optimal_lambda_prime() == pytest.approx(-0.040, abs=5e-4)
    assert PAPER.error(0.8, 0.6, "printed") == pytest.approx(8.08, abs=5e-3)
    assert PAPER.error(0.8, 0.6, "printed_without_stray") == pytest.approx(1.35, abs=5e-3)


def test_without_noise_nothing_is_lost() -> None:
    network = ShallowNetwork(1.0, 0.0, 4, 0.5)
    assert network.ml_error() == pytest.approx(0.0, abs=1e-15)
    assert network.gain() == 0.0
    assert network.optimal_theta() == pytest.approx(1.0)
    with pytest.raises(QuietnnError, match="every lambda' gives theta = 1; noise_variance must be positive"):
        network.optimal_lambda_prime()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_variance": -1.0}, "weight_variance is -1.0; it must be a finite number above 0"),
        ({"noise_variance": math.nan}, "noise_variance is nan; a variance must be finite and not negative"),
        ({"num_hidden": 0}, "num_hidden is 0; it must be a whole number of at least 1"),
        ({"input_limit": 0.0}, "input_limit is 0.0; it must be a finite number above 0"),
        ({"input_limit": math.inf}, "input_limit is inf"),
    ],
)
def test_bad_settings_name_value_limit_and_remedy(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "weight_variance": 1.0, "noise_variance": 1.0, "num_hidden": 3, "input_limit": 0.1
    }  # fmt: skip
    with pytest.raises(QuietnnError, match=message):
        ShallowNetwork(**{**arguments, **change})  # type: ignore[arg-type]


def test_unknown_form_is_refused() -> None:
    for call in (PAPER.optimal_theta, PAPER.ml_error, PAPER.gain, PAPER.optimal_lambda_prime):
        with pytest.raises(QuietnnError, match="form is 'taylor'; it must be one of"):
            call("taylor")  # type: ignore[arg-type]


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
