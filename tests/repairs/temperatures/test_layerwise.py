"""The coordinate search over groups."""

import pytest
import torch

from quietnn.errors import InfeasibleTemperatures
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.repairs.temperatures.searches import search_layerwise
from quietnn.repairs.temperatures.steps import Scale, scales, start_from
from quietnn.score import Score


@pytest.fixture
def by_group() -> GroupedWeights:
    """Two groups with signal and, last, one that shows none."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        "a.weight": torch.randn(50, 4, generator=generator) * 3,
        "b.weight": torch.randn(50, 4, generator=generator) * 2,
        "c.bias": torch.randn(4, generator=generator) * 0.1,
    }
    return GroupedWeights.of(weights, 1.0, groups="layerwise")


def bowl(by_group: GroupedWeights, **optima: tuple[float, float]) -> "Bowl":
    return Bowl(scales(by_group), optima)


class Bowl:
    """A score with a known optimum in each group's multiplier and shift; accuracy stays flat."""

    def __init__(self, steps: dict[str, Scale], optima: dict[str, tuple[float, float]]) -> None:
        self.steps, self.optima, self.num_calls = steps, optima, 0

    def __call__(self, temperatures: GroupTemperatures) -> Score:
        self.num_calls += 1
        distance = sum(
            (self.steps[group].theta(temperatures[group]) - theta) ** 2
            + (self.steps[group].shift(temperatures[group]) - shift) ** 2
            for group, (theta, shift) in self.optima.items()
        )
        return Score(accuracy=0.5, loss=distance, num_examples=100)


def test_it_walks_to_each_groups_own_optimum(by_group: GroupedWeights) -> None:
    score = bowl(by_group, a=(1.25, 0.0), b=(1.0, -0.1))
    start = dict.fromkeys(by_group.groups, ML)
    result = search_layerwise(score, by_group, start, num_sweeps=3)
    assert result.best.score is not None
    assert result.best.score.loss < 1e-3
    assert score.num_calls == len(result.trials)
    assert scales(by_group)["a"].theta(result.temperatures["a"]) == pytest.approx(1.25, abs=0.03)
    assert scales(by_group)["b"].shift(result.temperatures["b"]) == pytest.approx(-0.1, abs=0.03)


def test_a_sweep_costs_at_most_four_scores_a_group(by_group: GroupedWeights) -> None:
    score = bowl(by_group, a=(5.0, 1.0), b=(5.0, 1.0))
    search_layerwise(score, by_group, dict.fromkeys(by_group.groups, ML))
    assert score.num_calls == 1 + 4 + 4 + 1


def test_the_result_is_never_worse_than_the_start(by_group: GroupedWeights) -> None:
    score = bowl(by_group, a=(1.0, 0.0), b=(1.0, 0.0), c=(1.0, 0.0))
    start = dict.fromkeys(by_group.groups, ML)
    assert search_layerwise(score, by_group, start).temperatures == start


def test_a_group_without_signal_chooses_between_its_mean_and_itself(by_group: GroupedWeights) -> None:
    start = dict.fromkeys(by_group.groups, ML)
    assert search_layerwise(bowl(by_group, c=(0.0, 0.0)), by_group, start).temperatures["c"] == MMSE
    back = {**start, "c": MMSE}
    assert search_layerwise(bowl(by_group, c=(1.0, 0.0)), by_group, back).temperatures["c"] == ML


def test_without_beta_the_shift_stays(by_group: GroupedWeights) -> None:
    score = bowl(by_group, a=(1.2, 0.3), b=(1.0, -0.3))
    start = dict.fromkeys(by_group.groups, ML)
    result = search_layerwise(score, by_group, start, num_sweeps=2, with_beta=False)
    assert {pair.beta for trial in result.trials for pair in trial.temperatures.values()} == {0.0}


def test_without_noise_only_the_start_is_scored() -> None:
    by_group = GroupedWeights.of(
        {"a.weight": torch.randn(3, 3), "b.weight": torch.randn(3, 3)}, 0.0, groups="layerwise"
    )
    result = search_layerwise(lambda t: Score(1.0, 0.0, 1), by_group, dict.fromkeys(by_group.groups, ML))
    assert len(result.trials) == 1


def test_the_start_does_to_each_group_what_the_whole_did(by_group: GroupedWeights) -> None:
    whole = Scale(GroupedWeights.of(by_group.weights, 1.0).statistics["whole"], 1.0)
    start = start_from(Temperatures(1.05, 0.2), whole, by_group)
    steps = scales(by_group)
    for group in ("a", "b"):
        assert steps[group].theta(start[group]) == pytest.approx(whole.theta(Temperatures(1.05, 0.2)))
        assert steps[group].shift(start[group]) == pytest.approx(0.2)
    assert start["c"] == ML


def test_a_group_that_cannot_shrink_as_far_starts_at_its_mmse(by_group: GroupedWeights) -> None:
    whole = Scale(GroupedWeights.of(by_group.weights, 1.0).statistics["whole"], 1.0)
    start = start_from(MMSE, whole, by_group)
    assert start["a"] == MMSE, "the strongest group shrinks less than the whole"
    assert start["b"].lambda_prime > 0


def test_an_infeasible_start(by_group: GroupedWeights) -> None:
    def score(temperatures: GroupTemperatures) -> Score:
        by_group.denoisers(temperatures)
        return Score(1.0, 0.0, 1)

    with pytest.raises(InfeasibleTemperatures, match=r"start it from ML or MMSE"):
        search_layerwise(score, by_group, dict.fromkeys(by_group.groups, Temperatures(1e6)))
