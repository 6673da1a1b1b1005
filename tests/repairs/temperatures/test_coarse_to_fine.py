"""A search of few points that finds a smooth optimum."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietnn.errors import InfeasibleTemperatures, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.temperatures.result import Tried
from quietnn.repairs.temperatures.searches import coarse_to_fine
from quietnn.repairs.temperatures.steps import Scale
from quietnn.score import Score

scales = st.builds(
    Scale, st.builds(WeightStatistics, st.just(0.0), st.floats(0.01, 10), st.just(10)), st.floats(0.01, 10)
)


def bowl(scale: Scale, theta: float, shift: float) -> Callable[[Temperatures], Score]:
    """A score with its optimum at this multiplier and shift."""

    def score(temperatures: Temperatures) -> Score:
        distance = (scale.theta(temperatures) - theta) ** 2 + (scale.shift(temperatures) - shift) ** 2
        return Score(accuracy=1 - distance, loss=distance, num_examples=1)

    return score


@given(scales, st.floats(0.0, 1.0), st.floats(-0.2, 0.2))
@settings(max_examples=40)
def test_at_most_25_different_points_and_one_near_the_optimum(scale: Scale, share: float, shift: float) -> None:
    theta = scale.smallest_theta + share * (1.4 - scale.smallest_theta)
    result = coarse_to_fine(Tried(bowl(scale, theta, shift)), scale)
    points = [trial.temperatures for trial in result.trials]
    assert len(points) == len(set(points)) <= 25
    assert {ML, MMSE} <= set(points)
    half_step = (1.4 - scale.smallest_theta) / 8
    # The squares reach from ML down to 0.65 and from MMSE up by 0.15; what lies between is met halfway.
    half_gap = (0.65 - (scale.smallest_theta + 0.15)) / 2
    # A point may be farther in one direction if it is nearer in the other.
    away = math.hypot(scale.theta(result.temperatures) - theta, scale.shift(result.temperatures) - shift)
    assert away <= math.hypot(max(half_step, half_gap), 0.1) + 1e-9


@given(scales)
@settings(max_examples=20)
def test_without_beta_it_stays_at_zero(scale: Scale) -> None:
    result = coarse_to_fine(Tried(bowl(scale, 1.1, 0.2)), scale, with_beta=False)
    assert {trial.temperatures.beta for trial in result.trials} == {0.0}


def test_without_noise_there_is_nothing_to_search() -> None:
    scale = Scale(WeightStatistics(0.0, 1.0, 10), 0.0)
    result = coarse_to_fine(Tried(lambda temperatures: Score(1.0, 0.0, 1)), scale)
    assert [trial.temperatures for trial in result.trials] == [ML]


def test_without_signal_ml_and_mmse_are_left() -> None:
    scale = Scale(WeightStatistics(0.0, 0.0, 10), 1.0)
    tried = []

    def score(temperatures: Temperatures) -> Score:
        tried.append(scale.theta(temperatures))
        return Score(1 - tried[-1], 0.0, 1)

    result = coarse_to_fine(Tried(score), scale)
    assert set(tried) == {0.0, 1.0}
    assert result.temperatures == MMSE


def test_infeasible_points_are_recorded() -> None:
    scale = Scale(WeightStatistics(0.0, 1.0, 10), 1.0)

    def only_shrinking(temperatures: Temperatures) -> Score:
        if temperatures.lambda_prime > 0.5:
            raise InfeasibleTemperatures("too large")
        return Score(temperatures.lambda_prime, 0.0, 1)

    result = coarse_to_fine(Tried(only_shrinking), scale)
    assert any(trial.score is None for trial in result.trials)
    assert result.temperatures.lambda_prime <= 0.5


def test_nothing_feasible() -> None:
    def never(temperatures: Temperatures) -> Score:
        raise InfeasibleTemperatures("no")

    with pytest.raises(QuietnnError, match=r"temperatures is feasible"):
        coarse_to_fine(Tried(never), Scale(WeightStatistics(0.0, 1.0, 10), 1.0))
