"""One scratch copy, denoised again and again, scores what a network denoised afresh would."""

import pytest
import torch
from torch import nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.observation import Observation
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.denoise import denoise
from quietnn.repairs.grouped import grouped
from quietnn.repairs.temperatures.judge import Judge
from quietnn.score import Score, SubsetScore


@pytest.fixture
def observation() -> Observation:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    return transmit(network, wnr_db=3.0, seed=0)


def score(model: nn.Module) -> Score:
    """A number that all weights have a part in."""
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return Score(None, float(model(images).detach().var()), len(images))


@pytest.mark.parametrize("inference", [False, True])
def test_a_group_that_changes_leaves_the_others_as_they_are(observation: Observation, inference: bool) -> None:
    layers, judge = grouped(observation, "layerwise"), Judge(observation, score)
    first, last = layers.groups
    whole = {first: ML, last: MMSE}
    for temperatures in (whole, {**whole, first: MMSE}, {**whole, first: Temperatures(0.5, 0.1)}, MMSE, whole):
        afresh = denoise(observation, groups="layerwise", temperatures=temperatures).model
        with torch.inference_mode(inference):
            assert judge.score(layers, temperatures) == score(afresh)


def test_temperatures_that_are_infeasible_spoil_nothing(observation: Observation) -> None:
    layers, judge = grouped(observation, "layerwise"), Judge(observation, score)
    expected = judge.score(layers, MMSE)
    with pytest.raises(InfeasibleTemperatures):
        judge.score(layers, Temperatures(1e6))
    assert judge.score(layers, MMSE) == expected


def test_other_groups_are_written_anew(observation: Observation) -> None:
    judge = Judge(observation, score)
    by_whole = judge.score(grouped(observation), MMSE)
    judge.score(grouped(observation, "layerwise"), MMSE)
    assert judge.score(grouped(observation), MMSE) == by_whole


def test_only_a_score_of_some_examples_can_race(observation: Observation) -> None:
    subset = SubsetScore(lambda network, positions: Score(None, 0.5, len(positions)), num_examples=7)
    judge = Judge(observation, subset)
    assert judge.can_race
    assert judge.score(grouped(observation), ML, torch.arange(3)).num_examples == 3
    assert not Judge(observation, score).can_race
    with pytest.raises(InvalidConfig, match=r"give quietnn\.score\.SubsetScore"):
        Judge(observation, score).score(grouped(observation), ML, torch.arange(3))
