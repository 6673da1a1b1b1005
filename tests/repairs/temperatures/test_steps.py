"""Steps in multiplier and shift, translated to temperatures and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import ML, Temperatures, denoiser_for
from quietnn.repairs.temperatures.steps import Scale

scales = st.builds(
    Scale,
    st.builds(WeightStatistics, st.floats(-5, 5), st.floats(0.0, 50), st.just(10)),
    st.floats(0.0, 50),
)
comfortable = st.builds(
    Scale, st.builds(WeightStatistics, st.just(0.0), st.floats(0.01, 50), st.just(10)), st.floats(0.01, 50)
)


@given(comfortable, st.floats(0.01, 3.0), st.floats(-2, 2))
def test_there_and_back(scale: Scale, theta: float, shift: float) -> None:
    temperatures = scale.temperatures(theta, shift)
    assert scale.theta(temperatures) == pytest.approx(max(theta, scale.smallest_theta), rel=1e-6)
    assert scale.shift(temperatures) == pytest.approx(shift, abs=1e-12)


@given(comfortable, st.floats(-2, 2))
def test_the_shift_is_rho_over_theta_in_noise_standard_deviations(scale: Scale, shift: float) -> None:
    denoiser = denoiser_for(scale.temperatures(1.2, shift), scale.statistics, scale.noise_variance)
    assert denoiser.rho / denoiser.theta == pytest.approx(shift * scale.noise_variance**0.5, abs=1e-9)


@given(scales, st.floats(0.0, 10.0), st.floats(-2, 2))
def test_every_step_is_feasible(scale: Scale, theta: float, shift: float) -> None:
    denoiser_for(scale.temperatures(theta, shift), scale.statistics, scale.noise_variance)


@pytest.mark.parametrize("variance", [1e-15, 1e-16, 1.2e-16, 1e-17, 1e-300, 5e-324])
@pytest.mark.parametrize("theta", [0.3, 1.0, 1.4, 10.0])
def test_steps_of_a_group_that_drowns_in_noise_are_feasible(variance: float, theta: float) -> None:
    prior = WeightStatistics(0.0, variance, 10)
    denoiser_for(Scale(prior, 1.0).temperatures(theta, 0.1), prior, 1.0)


def test_the_multiplier_of_ml_is_ml() -> None:
    assert Scale(WeightStatistics(0.0, 0.3, 10), 0.7).temperatures(1.0, 0.0) == ML


def test_below_mmse_there_is_mmse() -> None:
    assert Scale(WeightStatistics(0.0, 1.0, 10), 1.0).temperatures(0.2, 0.5) == Temperatures(0.0, 0.5)
