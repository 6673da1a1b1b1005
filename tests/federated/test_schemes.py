"""A multiplier decided once, by the noise of the first round and the weights it meets."""

import math

import pytest
import torch

from quietnn.errors import InvalidConfig
from quietnn.federated.estimators import ReceivedSum
from quietnn.federated.schemes import SCHEMES, Planned

WEIGHTS = {"a.weight": torch.full((40,), 0.1), "b.weight": torch.full((60,), 0.4)}
SUM = {name: torch.ones_like(tensor) for name, tensor in WEIGHTS.items()}


def received(noise_variance: float) -> ReceivedSum:
    return ReceivedSum(SUM, noise_variance, WEIGHTS, num_devices=4)


def test_the_first_round_leaves_as_much_noise_as_there_are_weights() -> None:
    estimate = Planned()(received(100.0), {})
    rms = math.sqrt((40 * 0.01 + 60 * 0.16) / 100)
    assert float(estimate.total["a.weight"][0]) == pytest.approx(4 * rms / 10.0)
    assert estimate.notes["theta"] * 10.0 / 4 == pytest.approx(rms)
    half = Planned(noise_to_weights=0.5)(received(100.0), {})
    assert half.notes["theta"] == pytest.approx(estimate.notes["theta"] / 2)


def test_the_bold_plan_lets_twice_the_noise_in_and_never_more_than_came() -> None:
    plain, bold = (SCHEMES[name](received(100.0), {}).notes["theta"] for name in ("planned", "planned_bold"))
    assert bold == pytest.approx(2 * plain)
    assert SCHEMES["planned_bold"](received(1e-6), {}).notes["theta"] == 1.0


def test_what_the_first_round_decided_stays() -> None:
    first = Planned()(received(100.0), {})
    later = Planned()(received(1e-4), first.memory)
    assert torch.equal(first.total["a.weight"], later.total["a.weight"])


def test_layers_are_planned_by_their_own_weights() -> None:
    total = Planned(groups="layerwise")(received(100.0), {}).total
    assert float(total["a.weight"][0]) == pytest.approx(0.04)
    assert float(total["b.weight"][0]) == pytest.approx(0.16)


@pytest.mark.parametrize("noise_variance", [0.0, 1e-6])
def test_weak_noise_is_taken_as_it_comes(noise_variance: float) -> None:
    total = Planned()(received(noise_variance), {}).total
    assert all(torch.equal(total[name], tensor) for name, tensor in SUM.items())


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="above 0"):
        Planned(noise_to_weights=0.0)
