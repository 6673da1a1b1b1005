"""Repairs of one memory at several ages."""

import pytest
import torch
from tests.analog.conftest import analog
from torch import Tensor, nn

import quietnn
from quietnn.analog.over_time import RepairsOverTime, age_of, repair_over_time
from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence
from quietnn.repairs.base import Repaired
from quietnn.score import Score

AGES = (1.0, 86400.0, 3.15e7)


def test_every_repair_is_judged_at_every_later_age(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    found = repair_over_time(network, AGES, *examples, method="calibrated", seed=1)
    assert sorted(found.scores) == [(a, b) for a in AGES for b in AGES if b >= a]
    assert all(score is not None for score in found.received)
    assert str(found).splitlines()[0].split() == ["repaired", "at", "1", "second", "1", "day", "12.2", "months"]
    assert len(str(found).splitlines()) == 5


def test_the_first_age_is_repaired_as_by_one_call(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    found = repair_over_time(network, AGES[1:], *examples, method="posterior_digital", seed=1)
    observation = quietnn.transmit(network, channel=f"pcm:seconds={AGES[1]}", seed=1)
    alone = quietnn.repair(observation, *examples, method="posterior_digital", seed=1)
    for name, tensor in alone.model.state_dict().items():
        assert torch.equal(found.repaired[0].model.state_dict()[name], tensor), name


@pytest.mark.parametrize("method", ["posterior_digital", "posterior_adapter"])
def test_a_repair_at_its_own_age_is_what_was_judged(
    method: str, network: nn.Module, examples: tuple[Tensor, Tensor]
) -> None:
    found = repair_over_time(network, AGES, *examples, method=method, seed=1)
    for age, made in zip(AGES, found.repaired, strict=True):
        assert found.scores[age, age].loss == pytest.approx(Evidence(*examples).score_of(made.model).loss, abs=1e-4)


def test_what_was_learnt_at_one_age_is_used_at_the_next(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    """Few inputs at each age: their statistics add up."""
    inputs, _ = examples
    parts = tuple(Evidence(inputs[start : start + 6]) for start in (0, 6, 12))
    everything = [quietnn.transmit(network, channel=f"pcm:seconds={AGES[-1]}", seed=seed) for seed in range(6)]
    errors = []
    for carry in (True, False):
        off = 0.0
        for seed, observation in enumerate(everything):
            last = repair_over_time(network, AGES, parts, carry=carry, seed=seed).repaired[-1].model
            truth = quietnn.re_estimate(observation, inputs).model
            off += float((last[1].running_var / truth[1].running_var).log().square().mean())
        errors.append(off)
    assert errors[0] < errors[1]


@pytest.mark.analog
def test_a_network_of_aihwkit_ages_by_its_own_model(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)  # of what is written: by chance a repair of one draw in several is a little worse
    chip = analog(network)
    found = repair_over_time(chip, AGES, *examples, method="calibrated", seed=1)
    assert [made.name for made in found.repaired] == ["calibrated"] * 3
    assert found.scores[AGES[2], AGES[2]].loss < found.received[2].loss  # type: ignore[union-attr]
    assert all(tile.programmed_weights is None for tile in chip.analog_tiles())


def test_how_long_a_repair_lasts() -> None:
    made = Repaired(nn.Identity(), "calibrated")
    right = {(1.0, 1.0): 0.9, (1.0, 2.0): 0.895, (1.0, 3.0): 0.8, (2.0, 2.0): 0.9, (2.0, 3.0): 0.9, (3.0, 3.0): 0.9}
    scores = {key: Score(value, 0.0, 10) for key, value in right.items()}
    found = RepairsOverTime((1.0, 2.0, 3.0), (made,) * 3, (None,) * 3, scores)
    assert found.lasts() == {1.0: 2.0, 2.0: 3.0, 3.0: 3.0}
    assert found.lasts(margin=0.001) == {1.0: 1.0, 2.0: 3.0, 3.0: 3.0}


def test_ages_in_words() -> None:
    assert [age_of(age) for age in (0.5, 60, 2592000, 31536000)] == ["0.5 seconds", "1 minute", "1 month", "1 year"]


@pytest.mark.parametrize("ages", [[], [3600, 1], [1, 1], [-1], 60, ["day"]])
def test_ages_that_are_none(ages: list[float], network: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match=r"ages=\[1, 3600, 86400\]"):
        repair_over_time(network, ages, torch.rand(4, 8))


def test_methods_that_write_weights_are_refused(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InvalidConfig, match=r"'posterior', which writes new weights.*posterior_digital"):
        repair_over_time(network, AGES, *examples, method="posterior")
    with pytest.raises(InvalidConfig, match="one for each age"):
        repair_over_time(network, AGES, (Evidence(examples[0]),))


def test_a_teacher_stands_in_for_labels_at_every_age() -> None:
    torch.manual_seed(0)
    clean = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    inputs = torch.randn(80, 4)
    judged_on = Evidence(inputs, teacher=clean)
    by_age = tuple(Evidence(part) for part in inputs.split(40))
    for given in (inputs, by_age):
        asked = {"method": "matched", "teacher": clean, "channel": "pcm:programming=5", "judged_on": judged_on}
        history = repair_over_time(clean, [3600, 86400 * 365], given, seed=1, **asked)
        for age, received in zip(history.ages, history.received, strict=True):
            assert received is not None
            assert history.scores[age, age].loss < received.loss
