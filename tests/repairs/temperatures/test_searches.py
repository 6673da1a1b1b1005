"""Grid search: the whole surface, infeasible points recorded, ties broken by loss."""

import pytest
from torch import nn

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.temperatures.result import Tried
from quietnn.repairs.temperatures.searches import AUTHORS_GRIDS, product_grid
from quietnn.repairs.temperatures.tune import Search, tune
from quietnn.score import Score, SubsetScore
from quietnn.theory.family import check_lambda_prime


def score_past_pole(temperatures: Temperatures) -> Score:
    """Better for larger `lambda'`, so that only feasibility keeps the pole at 1.5 from winning."""
    check_lambda_prime(temperatures.lambda_prime, weight_variance=1.0, noise_variance=2.0)
    return Score(accuracy=temperatures.lambda_prime / 10, loss=1.0, num_examples=10)


def test_infeasible_points_are_recorded_and_cannot_win() -> None:
    grid = product_grid([0.5, 1.0, 1.4, 1.5, 2.0], [0.0])
    result = Tried(score_past_pole).on(grid)
    assert result.temperatures == Temperatures(1.4, 0.0)
    assert [trial.temperatures for trial in result.trials] == list(grid)
    assert [trial.score is None for trial in result.trials] == [False, False, False, True, True]


@pytest.mark.parametrize("whole", ["racing", None])
@pytest.mark.parametrize("grid", [[], [Temperatures(0.5, 1.0)]])
def test_an_empty_grid(whole: str | None, grid: list[Temperatures]) -> None:
    score, search = SubsetScore(lambda network, some: Score(None, 0.0, len(some)), 10), Search(whole, grid=grid)
    with pytest.raises(InvalidConfig, match=r"the grid is empty; give at least one pair"):
        tune(nn.Linear(5, 2), score=score, noise_variance=0.1, search=search, with_beta=False)


def test_other_errors_are_not_swallowed() -> None:
    def broken(temperatures: Temperatures) -> Score:
        raise QuietnnError("the data is gone")

    with pytest.raises(QuietnnError, match=r"the data is gone"):
        Tried(broken).on(product_grid([0.5], [0.0]))


@pytest.mark.parametrize(
    ("name", "num_points", "first", "last"),
    [
        ("resnet", 276, Temperatures(0.95, -4.0), Temperatures(1.06, 0.4)),
        ("shufflenetv2", 26 * 17, Temperatures(0.9, -4.0), Temperatures(1.15, 4.0)),
        ("bert", 25 * 34, Temperatures(0.02, -30.0), Temperatures(1.1, 50.0)),
    ],
)
def test_the_authors_grids(name: str, num_points: int, first: Temperatures, last: Temperatures) -> None:
    grid = product_grid(*AUTHORS_GRIDS[name])
    assert (len(grid), len(set(grid)), grid[0], grid[-1]) == (num_points, num_points, first, last)
    if name == "resnet":
        assert Temperatures(1.0, 0.0) in grid, "ML is one of the points"


def test_infeasible_is_an_error_outside_a_search() -> None:
    with pytest.raises(InfeasibleTemperatures):
        score_past_pole(Temperatures(1.5))
