"""A race finds what a full search finds, for a fraction of the looks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError
from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.temperatures.racing import Race, rounds
from quietnn.repairs.temperatures.result import Tried
from quietnn.repairs.temperatures.searches import AUTHORS_GRIDS, coarse_to_fine, product_grid
from quietnn.repairs.temperatures.steps import Scale
from quietnn.repairs.temperatures.tune import Search, tune
from quietnn.score import Score, SubsetScore
from quietnn.tasks.base import evaluate_classifier
from quietnn.tasks.digits import digits_task


def noisy_losses(num_points: int, num_examples: int, seed: int, noise: float) -> Tensor:
    """Losses by point and example: a bowl over the points, examples that differ, and some of both."""
    generator = torch.Generator().manual_seed(seed)
    bowl = torch.linspace(-1, 1, num_points).square()[:, None]
    hard = torch.rand(1, num_examples, generator=generator)  # shared by all points, so pairs cancel it
    return bowl + 5 * hard + noise * torch.randn(num_points, num_examples, generator=generator)


@given(st.integers(1, 60), st.integers(1, 50), st.integers(0, 5))
@settings(max_examples=40)
def test_no_example_is_looked_at_twice_and_the_cost_is_what_was_looked_at(
    points: int, examples: int, seed: int
) -> None:
    losses = noisy_losses(points, examples, seed, noise=0.1)
    looked: list[tuple[int, int]] = []

    def score(point: int, positions: Tensor) -> Score:
        looked.extend((point, position) for position in positions.tolist())
        return Score(0.0, float(losses[point, positions].mean()), len(positions))

    result = Race(score, examples, seed=seed).on(range(points))
    assert len(looked) == len(set(looked))
    assert result.num_passes == pytest.approx(len(looked) / examples)
    assert result.best.score is not None
    assert result.best.score.num_examples == examples
    assert result.best.score.loss == pytest.approx(float(losses[result.temperatures].mean()), rel=1e-5)


def test_differences_between_examples_do_not_decide_a_race() -> None:
    found = []
    for seed in range(20):
        losses = noisy_losses(41, 100, seed, noise=0.05)
        result = Race(
            lambda point, some, losses=losses: Score(0.0, float(losses[point, some].mean()), len(some)), 100, seed=seed
        ).on(range(41))
        found.append(abs(result.temperatures - 20))
    assert max(found) <= 4, "the middle of the bowl, give or take a flat stretch"


def test_a_pinned_point_runs_to_the_end_and_the_winner_is_not_worse() -> None:
    losses = noisy_losses(64, 30, 0, noise=3.0)
    race = Race(lambda point, some: Score(0.0, float(losses[point, some].mean()), len(some)), 30, "loss")
    result = race.on(range(64), pinned=(0,))
    last = {trial.temperatures: trial.score for trial in result.trials}
    assert last[0] is not None
    assert result.best.score is not None
    assert last[0].num_examples == 30
    assert result.best.score.loss <= last[0].loss


def test_infeasible_points_cost_nothing_and_cannot_win() -> None:
    def score(point: int, positions: Tensor) -> Score:
        if point < 10:
            raise InfeasibleTemperatures("past the pole")
        return Score(0.0, float(point), len(positions))

    result = Race(score, 27).on(range(20))
    assert result.temperatures == 10
    assert sum(trial.score is None for trial in result.trials) == 10
    with pytest.raises(QuietnnError, match="none of the 5"):
        Race(score, 27).on(range(5))


def test_what_is_not_a_number_loses() -> None:
    result = Race(lambda point, some: Score(0.0, math.nan if point else 1.0, len(some)), 9).on([1, 2, 0, 3, 4])
    assert result.temperatures == 0


def test_the_authors_grid_costs_less_than_a_tenth() -> None:
    grid = product_grid(*AUTHORS_GRIDS["resnet"])
    result = Race(lambda point, some: Score(0.0, point.beta**2, len(some)), 100).on(grid)
    assert len(grid) == 276
    assert result.num_passes <= 27.6


def test_no_examples_to_race_by() -> None:
    with pytest.raises(InvalidConfig, match="num_examples is 0; racing needs 1 or more"):
        Race(lambda point, some: Score(0.0, 0.0, len(some)), 0)


@given(st.integers(1, 3000), st.integers(1, 1000))
def test_rounds_grow_and_end_with_all_examples(num_points: int, num_examples: int) -> None:
    sizes = rounds(num_points, num_examples)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == num_examples
    assert sizes[0] >= 1


def test_a_raced_coarse_to_fine_search_finds_a_smooth_optimum_in_fewer_passes() -> None:
    scale = Scale(WeightStatistics(0.0, 1.0, 10), 1.0)

    def score(point: Temperatures, positions: Tensor) -> Score:
        distance = (scale.theta(point) - 1.15) ** 2 + (scale.shift(point) + 0.1) ** 2
        return Score(1 - distance, distance, len(positions))

    result = coarse_to_fine(Race(score, 100), scale)
    assert abs(scale.theta(result.temperatures) - 1.15) < 0.1
    assert abs(scale.shift(result.temperatures) + 0.1) < 0.1
    assert result.num_passes < 16
    assert {ML, MMSE} <= {trial.temperatures for trial in result.trials}
    flat = coarse_to_fine(Race(score, 100), scale, with_beta=False)
    assert {trial.temperatures.beta for trial in flat.trials} == {0.0}


def test_without_noise_there_is_nothing_to_race() -> None:
    scale = Scale(WeightStatistics(0.0, 1.0, 10), 0.0)
    result = coarse_to_fine(Race(lambda point, some: Score(1.0, 0.0, len(some)), 100), scale)
    assert [trial.temperatures for trial in result.trials] == [ML]


TASK = digits_task()
EXAMPLES = TASK.tuning_examples(60, 0)
BY_SUBSET = SubsetScore(lambda network, some: evaluate_classifier(network, EXAMPLES.take(some)), len(EXAMPLES))


def test_tuning_a_network_by_racing() -> None:
    observation = transmit(TASK.load_model(), wnr_db=6.0, seed=0)
    result = tune(observation, score=BY_SUBSET, search=Search(whole="racing")).details["search"]
    assert isinstance(result.temperatures, Temperatures)
    last = {trial.temperatures: trial.score for trial in result.trials}
    assert result.best.score is not None
    assert last[ML] is not None
    assert last[ML].num_examples == len(EXAMPLES)
    assert last[ML].loss == pytest.approx(BY_SUBSET(observation.received).loss, rel=1e-5)
    assert result.best.score.accuracy >= last[ML].accuracy
    assert result.num_passes < 16


def test_a_grid_can_be_raced_and_layers_follow() -> None:
    observation = transmit(TASK.load_model(), wnr_db=6.0, seed=0)
    grid = product_grid([0.9, 1.0, 1.1], [-1.0, 0.0])
    raced = tune(observation, score=BY_SUBSET, search=Search(whole="racing", grid=grid)).details["search"]
    assert {trial.temperatures for trial in raced.trials} == set(grid)
    layers = tune(observation, score=BY_SUBSET, groups="layerwise").details["search"]
    assert layers.best.score is not None
    assert layers.best.score.num_examples == len(EXAMPLES)


def test_examples_are_raced_where_nothing_else_is_said() -> None:
    observation = transmit(TASK.load_model(), wnr_db=6.0, seed=0)
    by_examples = tune(observation, TASK.evidence(EXAMPLES))
    by_hand = tune(observation, score=BY_SUBSET, search=Search(whole="racing"))
    assert by_examples.details["temperatures"] == by_hand.details["temperatures"]
    assert by_examples.passes == by_hand.passes < 17


def test_racing_needs_a_score_of_some_examples() -> None:
    def score(network: nn.Module) -> Score:
        return Score(1.0, 0.0, 10)

    with pytest.raises(InvalidConfig, match="SubsetScore"):
        tune(TASK.load_model(), score=score, noise_variance=0.1, search=Search(whole="racing"))
    with pytest.raises(InvalidConfig, match="did you mean 'racing'"):
        Search(whole="raceing")


def test_a_full_search_counts_one_pass_a_point() -> None:
    def score(point: int) -> Score:
        if point == 2:
            raise InfeasibleTemperatures("past the pole")
        return Score(0.0, 0.0, 100)

    assert Tried(score).on([1, 2, 3]).num_passes == 2
