"""Grid search: the whole surface, infeasible points recorded, ties broken by loss."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.searches import AUTHORS_GRIDS, product_grid, search_grid
from quietnn.score import Score
from quietnn.theory.family import check_lambda_prime

measures = st.floats(0, 1) | st.just(math.nan)


def score_past_pole(temperatures: Temperatures) -> Score:
    """Better for larger `lambda'`, so that only feasibility keeps the pole at 1.5 from winning."""
    check_lambda_prime(temperatures.lambda_prime, weight_variance=1.0, noise_variance=2.0)
    return Score(accuracy=temperatures.lambda_prime / 10, loss=1.0, num_examples=10)


def test_infeasible_points_are_recorded_and_cannot_win() -> None:
    grid = product_grid([0.5, 1.0, 1.4, 1.5, 2.0], [0.0])
    result = search_grid(score_past_pole, grid)
    assert result.temperatures == Temperatures(1.4, 0.0)
    assert [trial.temperatures for trial in result.trials] == list(grid)
    assert [trial.score is None for trial in result.trials] == [False, False, False, True, True]


def test_ties_are_broken_by_loss_and_then_by_order() -> None:
    scores = {0.0: (0.8, 0.5), 1.0: (0.9, 0.4), 2.0: (0.9, 0.3), 3.0: (0.9, 0.3)}
    grid = product_grid([0.5], scores)
    result = search_grid(lambda t: Score(*scores[t.beta], num_examples=10), grid)
    assert result.temperatures.beta == 2.0
    assert search_grid(lambda t: Score(*scores[t.beta], num_examples=10), grid[::-1]).temperatures.beta == 3.0


def test_ties_left_to_the_order_of_the_trials() -> None:
    scores = {0.0: (0.8, 0.1), 1.0: (0.9, 0.4), 2.0: (0.9, 0.3)}
    grid = product_grid([0.5], scores)
    result = search_grid(lambda t: Score(*scores[t.beta], num_examples=10), grid, criterion="accuracy-only")
    assert result.temperatures.beta == 1.0


def test_by_loss_alone() -> None:
    scores = {0.0: (0.9, 0.5), 1.0: (0.1, 0.4)}
    result = search_grid(
        lambda t: Score(*scores[t.beta], num_examples=10), product_grid([0.5], scores), criterion="loss"
    )
    assert result.temperatures.beta == 1.0


@given(st.lists(st.tuples(measures, measures), min_size=1), st.sampled_from(Criterion))
def test_what_is_not_a_number_never_beats_a_number(pairs: list[tuple[float, float]], criterion: Criterion) -> None:
    trials = [Trial(i, Score(accuracy, loss, 1)) for i, (accuracy, loss) in enumerate(pairs)]
    best = TuningResult.of(trials, criterion).best.score
    assert best is not None
    if criterion is not Criterion.LOSS:
        assert best.accuracy == max(
            (a for a, _ in pairs if not math.isnan(a)), default=pytest.approx(math.nan, nan_ok=True)
        )
    else:
        assert best.loss == min(
            (loss for _, loss in pairs if not math.isnan(loss)), default=pytest.approx(math.nan, nan_ok=True)
        )


def test_nothing_feasible() -> None:
    with pytest.raises(QuietnnError, match=r"none of the 2 temperatures is feasible; add some with lambda' < 1"):
        search_grid(score_past_pole, product_grid([2.0, 3.0], [0.0]))


def test_an_empty_grid() -> None:
    with pytest.raises(InvalidConfig, match=r"the grid is empty; give at least one pair"):
        search_grid(score_past_pole, [])


def test_an_unknown_criterion() -> None:
    with pytest.raises(
        InvalidConfig,
        match=r"criterion is 'accurcy'; did you mean 'accuracy'\? choose one of accuracy, accuracy-only, loss",
    ):
        search_grid(score_past_pole, product_grid([0.5], [0.0]), criterion="accurcy")


def test_other_errors_are_not_swallowed() -> None:
    def broken(temperatures: Temperatures) -> Score:
        raise QuietnnError("the data is gone")

    with pytest.raises(QuietnnError, match=r"the data is gone"):
        search_grid(broken, product_grid([0.5], [0.0]))


@pytest.mark.parametrize(
    ("name", "num_points", "first", "last"),
    [
        ("resnet", 276, Temperatures(0.95, -4.0), Temperatures(1.06, 0.4)),
        ("shufflenetv2", 26 * 17, Temperatures(0.9, -4.0), Temperatures(1.15, 4.0)),
        ("bert", 25 * 34, Temperatures(0.02, -30.0), Temperatures(1.1, 50.0)),
    ],
)
def test_the_authors_grids(name: str, num_points: int, first: Temperatures, last: Temperatures) -> None:
    grid = AUTHORS_GRIDS[name]
    assert (len(grid), len(set(grid)), grid[0], grid[-1]) == (num_points, num_points, first, last)
    if name == "resnet":
        assert Temperatures(1.0, 0.0) in grid, "ML is one of the points"


def test_infeasible_is_an_error_outside_a_search() -> None:
    with pytest.raises(InfeasibleTemperatures):
        score_past_pole(Temperatures(1.5))
