"""Theorem 1: the surface by moments, its derivatives, its critical points and its optimum."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from quietnn.errors import QuietnnError
from quietnn.theory.family import affine_coefficients
from quietnn.theory.quadratic import QuadraticNetwork

networks = st.builds(
    QuadraticNetwork,
    weight_variance=st.floats(0.05, 20.0),
    noise_variance=st.floats(0.01, 20.0),
    dimension=st.integers(1, 30),
    offset=st.floats(-2.0, 2.0),
    constants=st.sampled_from(["corrected", "printed"]),
)
points = st.tuples(st.floats(-1.5, 1.5), st.floats(-3.0, 3.0))
PAPER = QuadraticNetwork(weight_variance=2.25, noise_variance=1.0, dimension=5, offset=0.1)


@given(networks, points)
def test_error_equals_the_moments_it_is_made_of(network: QuadraticNetwork, point: tuple[float, float]) -> None:
    theta, rho = point
    sw, s, d = network.weight_variance, network.received_variance, network.dimension
    mean = theta**2 * s + rho**2 - sw  # of w_hat^2 - w^2
    fourth = rho**4 + 6 * rho**2 * theta**2 * s + 3 * theta**4 * s**2
    mixed = theta**2 * (3 * sw**2 + sw * network.noise_variance) + rho**2 * sw
    square = fourth - 2 * mixed + 3 * sw**2
    expected = d * network.fourth_moment * square + d * (d - 1) * network.squared_second_moment * mean**2
    scale = network.a * (sw + theta**2 * s + rho**2) ** 2
    assert network.error(theta, rho) == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


def test_moments_of_the_input_are_those_of_a_uniform_variable() -> None:
    x, weights = np.polynomial.legendre.leggauss(8)
    for c in (-0.7, 0.0, 0.1, 1.0):
        network = QuadraticNetwork(1.0, 1.0, 3, c)
        assert network.fourth_moment == pytest.approx(weights @ (x - c) ** 4 / 2)
        assert network.squared_second_moment == pytest.approx((weights @ (x - c) ** 2 / 2) ** 2)


def test_printed_constants_are_the_papers() -> None:
    c, d = 0.3, 4
    network = QuadraticNetwork(1.0, 1.0, d, c, constants="printed")
    assert network.a == pytest.approx((c**2 - 1 / 3) ** 2 * d**2 + 2 * (c**4 + 10 / 3 * c**2 + 11 / 45) * d)
    assert network.b == pytest.approx((c**2 - 1 / 3) ** 2 * d**2 + 4 / 3 * (2 * c**2 + 1 / 15) * d)


@given(networks, points)
def test_gradient_and_hessian_match_finite_differences(network: QuadraticNetwork, point: tuple[float, float]) -> None:
    at, step = np.array(point), 1e-4
    scale = network.a * (network.received_variance + 10) ** 2
    gradient = network.gradient(*point)
    hessian = network.hessian(*point)
    for axis, move in enumerate(np.eye(2) * step):
        slope = (network.error(*(at + move)) - network.error(*(at - move))) / (2 * step)
        assert gradient[axis] == pytest.approx(slope, rel=1e-5, abs=1e-6 * scale)
        curvature = (network.gradient(*(at + move)) - network.gradient(*(at - move))) / (2 * step)
        assert hessian[axis] == pytest.approx(curvature, rel=1e-5, abs=1e-6 * scale)


@given(networks)
def test_critical_points_have_no_slope_and_the_stated_kinds(network: QuadraticNetwork) -> None:
    found = network.critical_points()
    scale = network.a * network.weight_variance**1.5 * math.sqrt(network.received_variance)
    for point in found:
        assert network.gradient(point.theta, point.rho) == pytest.approx(
            [0, 0], abs=1e-9 * scale * (1 + network.received_variance / network.weight_variance)
        )
    assert [point.kind for point in found] == ["maximum", "minimum", "minimum", "saddle"]


def test_p4_is_a_saddle_by_the_determinant_of_the_errata() -> None:
    p4 = PAPER.critical_points()[3]
    a, b, s = PAPER.a, PAPER.b, PAPER.received_variance
    determinant = np.linalg.det(PAPER.hessian(p4.theta, p4.rho))
    assert determinant == pytest.approx(64 * 2.25**3 * 1.0 * b * (b - a) / s)
    assert determinant < 0


def test_without_noise_p4_falls_on_p2_and_is_degenerate() -> None:
    network = QuadraticNetwork(1.5, 0.0, 3, 0.2)
    _, p2, p3, p4 = network.critical_points()
    assert (p4.theta, p4.rho) == pytest.approx((p2.theta, p2.rho))
    assert (p2.kind, p3.kind, p4.kind) == ("degenerate", "minimum", "degenerate")
    assert (network.optimal_theta, network.gain, network.ml_error, network.optimal_error) == (1.0, 0.0, 0.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(networks)
def test_numerical_optimiser_finds_the_best_feasible_point(network: QuadraticNetwork) -> None:
    sw, s = network.weight_variance, network.received_variance
    edge, scale = sw / s, math.sqrt(sw)
    best = min(
        minimize(
            lambda p: network.error(p[0] * edge, p[1] * scale) / network.error(0.0, 0.0),
            start,
            jac=lambda p: network.gradient(p[0] * edge, p[1] * scale) * [edge, scale] / network.error(0.0, 0.0),
            bounds=[(1.0, None), (0.0, None)],
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-12},
        ).fun
        for start in ((network.optimal_theta / edge * 1.1, 0.1), (1.05, 0.9))
    )
    assert network.best_feasible().error / network.error(0.0, 0.0) == pytest.approx(best, rel=1e-6)


@given(networks)
def test_p3_is_the_global_minimum_only_up_to_the_noise_of_erratum_six(network: QuadraticNetwork) -> None:
    _, p2, p3, _ = network.critical_points()
    is_p3 = network.b * network.noise_variance**2 <= network.a * network.weight_variance**2
    assert (p3 if is_p3 else p2).error == pytest.approx(min(p2.error, p3.error), rel=1e-9)


@given(networks)
def test_gain_and_errors_agree_with_the_surface(network: QuadraticNetwork) -> None:
    ml_error, best = network.ml_error, network.optimal_error
    assert ml_error == pytest.approx(network.error(1.0, 0.0), rel=1e-7)
    assert best == pytest.approx(network.critical_points()[2].error, rel=1e-6, abs=1e-9 * network.error(0.0, 0.0))
    assert network.gain == pytest.approx((ml_error - best) / ml_error, rel=1e-7, abs=1e-9)


@given(networks)
def test_optimal_temperatures_give_the_optimal_coefficients(network: QuadraticNetwork) -> None:
    theta, rho = affine_coefficients(
        network.optimal_lambda_prime,
        0.0,
        weight_variance=network.weight_variance,
        noise_variance=network.noise_variance,
    )
    assert theta == pytest.approx(network.optimal_theta, rel=1e-9)
    assert rho == 0
    assert network.optimal_lambda_ == pytest.approx(network.optimal_lambda_prime / (2 * network.weight_variance))


def test_figure_3_of_the_paper() -> None:
    assert QuadraticNetwork(2.25, 1.0, 5, 0.1, "printed").gain == pytest.approx(0.580, abs=5e-4)
    assert PAPER.gain == pytest.approx(0.586, abs=5e-4)


def test_error_broadcasts_over_arrays() -> None:
    theta, rho = np.linspace(0, 1, 4)[:, None], np.linspace(-1, 1, 3)
    surface = PAPER.error(theta, rho)
    assert surface.shape == (4, 3)
    assert surface[2, 0] == PAPER.error(float(theta[2, 0]), float(rho[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_variance": -1.0}, "weight_variance is -1.0; it must be a finite number above 0"),
        ({"weight_variance": 0.0}, "weight_variance is 0.0"),
        ({"weight_variance": math.nan}, "weight_variance is nan"),
        ({"noise_variance": -0.5}, "noise_variance is -0.5; a variance must be finite and not negative"),
        ({"noise_variance": math.inf}, "noise_variance is inf"),
        ({"dimension": 0}, "dimension is 0; it must be a whole number of at least 1"),
        ({"dimension": 2.5}, "dimension is 2.5"),
        ({"offset": math.nan}, "offset is nan; it must be a finite number"),
        ({"constants": "other"}, "constants is 'other'; it must be one of"),
    ],
)
def test_bad_settings_name_value_limit_and_remedy(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"weight_variance": 1.0, "noise_variance": 1.0, "dimension": 3, "offset": 0.1}
    with pytest.raises(QuietnnError, match=message):
        QuadraticNetwork(**{**arguments, **change})  # type: ignore[arg-type]
