"""Schemes that remember: a prior carried from round to round, and a multiplier decided once."""

import math

import pytest
import torch

from quietnn.errors import InvalidConfig
from quietnn.federated.estimators import Memory, ReceivedSum
from quietnn.federated.schemes import SCHEMES, Carried, Planned, fixed_temperatures

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


def test_a_carried_prior_is_the_kalman_filter_of_an_autoregressive_sum() -> None:
    """Against the textbook recursion with the true parameters: nearly its error, and well below MMSE."""
    a, q, noise_variance, num = 0.9, 0.19, 4.0, 20_000
    generator = torch.Generator().manual_seed(0)
    total = torch.randn(num, generator=generator)
    memory: Memory = {}
    mean, variance = torch.zeros(num), 1.0
    carried, kalman, mmse = [], [], []
    for number in range(12):
        if number:
            total = a * total + math.sqrt(q) * torch.randn(num, generator=generator)
            mean, variance = a * mean, a * a * variance + q
        heard = total + math.sqrt(noise_variance) * torch.randn(num, generator=generator)
        received = ReceivedSum({"w": heard}, noise_variance, {"w": total}, 1)
        estimate = Carried()(received, memory)
        memory = estimate.memory
        gain = variance / (variance + noise_variance)
        mean, variance = mean + gain * (heard - mean), (1 - gain) * variance
        for errors, guess in ((carried, estimate.total["w"]), (kalman, mean), (mmse, 0.2 * heard)):
            errors.append(float((guess - total).square().mean()))
    assert carried[-1] == pytest.approx(kalman[-1], rel=0.03)
    assert carried[-1] < 0.8 * mmse[-1]
    assert carried[0] == pytest.approx(mmse[0], rel=0.02)


def test_fixed_temperatures_have_the_multiplier_that_was_asked_for() -> None:
    temperatures = fixed_temperatures(0.25, -0.5, -10.0)
    assert temperatures.lambda_prime == pytest.approx(1 + 0.1 * (1 - 4))
    assert temperatures.beta == -0.5
