"""The coefficients of the family against what defines them: the least compensated squared error."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, optimize

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError
from quietnn.theory.family import (
    Form,
    Region,
    affine_coefficients,
    lambda_prime_of,
    noise_variance_of,
    pole,
    region,
)

variances = st.floats(0.01, 100.0)
means = st.floats(-10.0, 10.0)
betas = st.floats(-5.0, 5.0)
shares = st.floats(0.0, 0.95)
"""Where `lambda'` lies between 0 and its pole."""


def compensated_minimiser(
    r: float, lambda_: float, beta: float, centre: float, mean: float, weight_variance: float, noise_variance: float
) -> float:
    """The `w_hat` with the least `E[(w_hat - w)^2 exp(lambda (w - m)^2 + beta w) | r]`, by quadrature and search.

    Eq. (12), up to the factor that does not depend on `w_hat`.
    """

    def exponent(w: float) -> float:
        prior = -((w - mean) ** 2) / (2 * weight_variance)
        likelihood = -((r - w) ** 2) / (2 * noise_variance)
        return prior + likelihood + lambda_ * (w - centre) ** 2 + beta * w

    curvature = 1 / weight_variance + 1 / noise_variance - 2 * lambda_
    peak = optimize.minimize_scalar(lambda w: -exponent(w), bracket=(r - 1.0, r + 1.0)).x
    reach, top = 12 / math.sqrt(curvature), exponent(peak)

    def error(estimate: float) -> float:
        integrand = lambda w: (estimate - w) ** 2 * math.exp(exponent(w) - top)  # noqa: E731
        return float(integrate.quad(integrand, peak - reach, peak + reach, epsabs=0, epsrel=1e-11, limit=200)[0])

    return float(optimize.minimize_scalar(error, bracket=(peak - reach / 8, peak + reach / 7), tol=1e-9).x)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("case", range(8))
def test_theta_and_rho_minimise_the_compensated_error(form: Form, case: int) -> None:
    draw = np.random.default_rng([case, 7])
    weight_variance, noise_variance = draw.uniform(0.2, 3.0, 2)
    mean, beta, r = draw.normal(0, 1, 3)
    mean = 0.0 if form is Form.ZERO_MEAN else mean
    lambda_prime = draw.uniform(0, 0.9) * pole(weight_variance=weight_variance, noise_variance=noise_variance)
    theta, rho = affine_coefficients(
        lambda_prime,
        beta,
        weight_variance=weight_variance,
        noise_variance=noise_variance,
        weight_mean=mean,
        form=form,
    )
    best = compensated_minimiser(
        r,
        lambda_prime / (2 * weight_variance),
        beta,
        mean if form is Form.CENTRED else 0.0,
        mean,
        weight_variance,
        noise_variance,
    )
    assert theta * r + rho == pytest.approx(best, rel=1e-5, abs=1e-5)


@given(variances, variances, means, betas, shares)
def test_the_forms_agree_without_a_mean_and_in_their_multiplier(
    weight_variance: float, noise_variance: float, mean: float, beta: float, share: float
) -> None:
    given_variances = {"weight_variance": weight_variance, "noise_variance": noise_variance}
    lambda_prime = share * pole(**given_variances)
    at_zero = {affine_coefficients(lambda_prime, beta, form=form, **given_variances) for form in Form}
    at_mean = {affine_coefficients(lambda_prime, beta, weight_mean=mean, form=f, **given_variances)[0] for f in Form}
    assert len(at_zero) == len(at_mean) == 1


@given(variances, variances, means, betas)
def test_ml_and_mmse_are_members(weight_variance: float, noise_variance: float, mean: float, beta: float) -> None:
    given_variances = {"weight_variance": weight_variance, "noise_variance": noise_variance}
    total = weight_variance + noise_variance
    assert affine_coefficients(1.0, 0.0, weight_mean=mean, **given_variances) == (1.0, 0.0)
    for form in (Form.CENTRED, Form.UNCENTRED):
        theta, rho = affine_coefficients(0.0, 0.0, weight_mean=mean, form=form, **given_variances)
        assert theta == pytest.approx(weight_variance / total)
        assert rho == pytest.approx(mean * noise_variance / total, abs=1e-12)
    theta, rho = affine_coefficients(1.0, beta, weight_mean=mean, **given_variances)
    assert (theta, rho) == (1.0, pytest.approx(noise_variance * beta))


@given(variances, variances, means)
def test_uncentred_ml_is_off_by_the_mean_over_the_wnr(
    weight_variance: float, noise_variance: float, mean: float
) -> None:
    theta, rho = affine_coefficients(
        1.0,
        0.0,
        weight_variance=weight_variance,
        noise_variance=noise_variance,
        weight_mean=mean,
        form="uncentred",
    )
    assert (theta, rho) == (1.0, pytest.approx(mean / (weight_variance / noise_variance)))


@given(variances, means, betas, st.floats(0.0, 1e6))
def test_without_noise_every_member_is_the_identity(
    weight_variance: float, mean: float, beta: float, lambda_prime: float
) -> None:
    for form in Form:
        assert affine_coefficients(
            lambda_prime, beta, weight_variance=weight_variance, noise_variance=0.0, weight_mean=mean, form=form
        ) == (1.0, 0.0)


@given(st.floats(1e-300, 1e300), means, betas, st.floats(0.0, 1.0, exclude_max=True))
def test_without_signal_every_member_is_the_prior_mean(
    noise_variance: float, mean: float, beta: float, lambda_prime: float
) -> None:
    nothing = {"weight_variance": 0.0, "noise_variance": noise_variance, "weight_mean": mean}
    assert affine_coefficients(lambda_prime, beta, **nothing) == (0.0, mean)
    assert affine_coefficients(0.0, beta, form="uncentred", **nothing) == (0.0, mean)
    assert affine_coefficients(lambda_prime, beta, form="zero-mean", **nothing) == (0.0, 0.0)


def test_without_signal_ml_stays_and_the_rest_of_its_row_is_infeasible() -> None:
    nothing = {"weight_variance": 0.0, "noise_variance": 1.0, "weight_mean": 3.0}
    assert affine_coefficients(1.0, 0.0, **nothing) == (1.0, 0.0)
    for temperatures in [(1.0, 0.1), (1.1, 0.0)]:
        with pytest.raises(InfeasibleTemperatures, match=r"outside \[0, 1 \+ eta\) = \[0, 1\) at a WNR of -inf dB"):
            affine_coefficients(*temperatures, **nothing)


@given(variances, variances, means)
def test_with_clean_statistics_mmse_is_not_worse_than_any_member(
    weight_variance: float, noise_variance: float, mean: float
) -> None:
    """`E(theta r + rho - w)^2 = (theta - 1)^2 sigma_w^2 + theta^2 sigma_z^2 + ((theta - 1) mu_w + rho)^2`."""

    def expected_error(lambda_prime: float, beta: float) -> float:
        theta, rho = affine_coefficients(
            lambda_prime, beta, weight_variance=weight_variance, noise_variance=noise_variance, weight_mean=mean
        )
        spread = (theta - 1) ** 2 * weight_variance + theta**2 * noise_variance
        return spread + ((theta - 1) * mean + rho) ** 2

    best = expected_error(0.0, 0.0)
    assert best == pytest.approx(weight_variance * noise_variance / (weight_variance + noise_variance))
    for temperatures in [(1.0, 0.0), (0.5, 0.0), (1.0, 0.3), (0.0, -0.3)]:
        assert best <= expected_error(*temperatures) * (1 + 1e-12)


@given(variances, variances, shares)
def test_lambda_prime_of_inverts_theta(weight_variance: float, noise_variance: float, share: float) -> None:
    given_variances = {"weight_variance": weight_variance, "noise_variance": noise_variance}
    lambda_prime = share * pole(**given_variances)
    theta, _ = affine_coefficients(lambda_prime, 0.0, **given_variances)
    assert lambda_prime_of(theta, **given_variances) == pytest.approx(lambda_prime, rel=1e-9, abs=1e-9)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(0, 3), betas)
def test_the_pole_and_what_lies_past_it_are_refused(
    weight_variance: float, noise_variance: float, ulps: int, beta: float
) -> None:
    given_variances = {"weight_variance": weight_variance, "noise_variance": noise_variance}
    lambda_prime = pole(**given_variances)
    assume(lambda_prime > 1)
    for _ in range(ulps):
        lambda_prime = math.nextafter(lambda_prime, math.inf)
    assert region(lambda_prime, **given_variances) is Region.INFEASIBLE
    with pytest.raises(InfeasibleTemperatures, match=r"lambda' = .* is outside \[0, 1 \+ eta\).*choose one inside"):
        affine_coefficients(lambda_prime, beta, **given_variances)


@given(st.floats(0.0), st.floats(0.0), st.floats(), st.floats(), st.floats())
def test_the_coefficients_are_finite_or_refused(
    weight_variance: float, noise_variance: float, mean: float, lambda_prime: float, beta: float
) -> None:
    for form in Form:
        try:
            theta, rho = affine_coefficients(
                lambda_prime,
                beta,
                weight_variance=weight_variance,
                noise_variance=noise_variance,
                weight_mean=mean,
                form=form,
            )
        except QuietnnError:
            continue
        assert 0 <= theta < math.inf
        assert math.isfinite(rho)


@pytest.mark.parametrize(
    ("lambda_prime", "noise_variance"),
    [
        (-0.1, 0.0),
        (-0.1, 1.0),
        (math.nan, 0.0),
        (math.nan, 1.0),
        (math.inf, 0.0),
        (math.inf, 1.0),
        (4.0, 1.0),
        (5.0, 1.0),
    ],
)
def test_temperatures_outside_their_range(lambda_prime: float, noise_variance: float) -> None:
    with pytest.raises(InfeasibleTemperatures, match=rf"lambda' = {lambda_prime:g} is outside"):
        affine_coefficients(lambda_prime, 0.0, weight_variance=3.0, noise_variance=noise_variance)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["weight_variance", "noise_variance"])
def test_what_is_no_variance(name: str, value: float) -> None:
    with pytest.raises(QuietnnError, match=rf"{name} is {value}; a variance must be finite and not negative"):
        affine_coefficients(0.0, 0.0, **{"weight_variance": 1.0, "noise_variance": 1.0, name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number(value: float) -> None:
    with pytest.raises(QuietnnError, match=rf"beta is {value}; it must be a finite number"):
        affine_coefficients(0.0, value, weight_variance=1.0, noise_variance=1.0)
    with pytest.raises(QuietnnError, match=rf"weight_mean is {value}; it must be a finite number"):
        affine_coefficients(0.0, 0.0, weight_variance=1.0, noise_variance=1.0, weight_mean=value)


def test_an_unknown_form() -> None:
    with pytest.raises(
        InvalidConfig, match=r"form is 'centered'; did you mean 'centred'\? choose one of centred, uncentred, zero-mean"
    ):
        affine_coefficients(0.0, 0.0, weight_variance=1.0, noise_variance=1.0, form="centered")


@pytest.mark.parametrize(
    ("lambda_prime", "name"),
    [
        (0.0, Region.ZERO),
        (0.5, Region.UNDER),
        (1.0, Region.EXACT),
        (3.9, Region.OVER),
        (4.0, Region.INFEASIBLE),
        (-1.0, Region.INFEASIBLE),
        (math.nan, Region.INFEASIBLE),
    ],
)
def test_regions_of_figure_2(lambda_prime: float, name: Region) -> None:
    assert region(lambda_prime, weight_variance=3.0, noise_variance=1.0) is name


@pytest.mark.parametrize("theta", [0.0, -1.0, math.nan])
def test_multipliers_of_no_temperature(theta: float) -> None:
    with pytest.raises(QuietnnError, match=f"theta is {theta}"):
        lambda_prime_of(theta, weight_variance=1.0, noise_variance=1.0)


def test_without_noise_a_multiplier_tells_nothing() -> None:
    with pytest.raises(QuietnnError, match=r"noise_variance must be positive"):
        lambda_prime_of(1.0, weight_variance=1.0, noise_variance=0.0)


def test_noise_variance_of() -> None:
    assert noise_variance_of(math.inf, 2.0) == 0.0
    assert noise_variance_of(-10.0, 2.0) == pytest.approx(20.0)
    with pytest.raises(QuietnnError, match=r"the noise variance at -3000.0 dB is inf"):
        noise_variance_of(-3000.0, 1e10)
