"""Noise power from pilots and from repeated receptions: unbiased, with errors that say how far off it is."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.noise_power.estimate import noise_power_from_pilots, noise_power_from_receptions
from quietnn.tasks.digits import digits_task

NUM_REPEATS = 200


def deviations(kind: str, *, num_entries: int, noise_variance: float) -> torch.Tensor:
    """How many standard errors the estimate is off, again and again."""
    generator = torch.Generator().manual_seed(0)
    off = []
    for _ in range(NUM_REPEATS):
        weights = torch.randn(num_entries, generator=generator)
        noise = math.sqrt(noise_variance) * torch.randn(2, num_entries, generator=generator)
        if kind == "pilots":
            estimate = noise_power_from_pilots(weights + noise[0], weights)
        else:
            estimate = noise_power_from_receptions(list(weights + noise))
        off.append((estimate.variance - noise_variance) / estimate.standard_error)
    return torch.tensor(off)


@pytest.mark.parametrize("kind", ["pilots", "receptions"])
@pytest.mark.parametrize("noise_variance", [0.01, 4.0])
def test_the_estimate_is_unbiased_and_its_error_is_honest(kind: str, noise_variance: float) -> None:
    off = deviations(kind, num_entries=400, noise_variance=noise_variance)
    assert abs(float(off.mean())) < 4 / math.sqrt(NUM_REPEATS)
    covered = float((off.abs() < 1.96).double().mean())
    assert 0.90 < covered < 0.99


@given(st.integers(2, 5), st.floats(1e-3, 10.0))
@settings(max_examples=20)
def test_receptions_agree_with_the_sample_variance(num_receptions: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(num_receptions)
    receptions = scale * torch.randn(num_receptions, 50, generator=generator, dtype=torch.float64)
    estimate = noise_power_from_receptions(list(receptions))
    assert estimate.variance == pytest.approx(float(receptions.var(0).mean()), rel=1e-9)
    assert estimate.standard_error == pytest.approx(estimate.variance * math.sqrt(2 / (50 * (num_receptions - 1))))


def test_a_network_sent_twice() -> None:
    model = digits_task().load_model()
    first, second = (transmit(model, wnr_db=6.0, seed=seed) for seed in (0, 1))
    estimate = noise_power_from_receptions([first.received, second.received])
    assert abs(estimate.variance - first.noise_variance) < 3 * estimate.standard_error
    assert estimate.standard_error < 0.02 * estimate.variance
    assert "2 receptions" in str(estimate)


def test_pilots_of_a_network_are_named_by_tensor() -> None:
    model = digits_task().load_model()
    with torch.no_grad():
        model.layer2.conv1.weight[:, :4] = 0.0  # pruned before sending, and the receiver knows
    observation = transmit(model, wnr_db=6.0, seed=0)
    sent = torch.full_like(model.layer2.conv1.weight, torch.nan)
    sent[:, :4] = 0.0
    estimate = noise_power_from_pilots(observation.received, {"layer2.conv1.weight": sent})
    assert estimate.source == f"{32 * 4 * 9} known entries"
    assert abs(estimate.variance - observation.noise_variance) < 3 * estimate.standard_error


def test_a_number_stands_for_a_tensor_full_of_it() -> None:
    received = {"a": torch.tensor([1.0, -1.0]), "b": torch.tensor([7.0])}
    assert noise_power_from_pilots(received, {"a": 0.0}).variance == 1.0
    assert noise_power_from_pilots(torch.tensor([3.0, 5.0]), 4.0).variance == 1.0


def test_without_noise_the_estimate_is_zero() -> None:
    weights = torch.randn(10)
    estimate = noise_power_from_receptions([weights, weights.clone()])
    assert (estimate.variance, estimate.standard_error) == (0.0, 0.0)


@pytest.mark.parametrize("sent", [{}, {"weight": torch.full((2, 2), torch.nan)}])
def test_no_pilots(sent: dict[str, torch.Tensor]) -> None:
    with pytest.raises(InvalidConfig, match="no transmitted value is known"):
        noise_power_from_pilots(nn.Linear(2, 2), sent)


@pytest.mark.parametrize(
    ("sent", "message"),
    [({"wieght": 0.0}, "'wieght' is not a tensor"), ({"weight": torch.zeros(3)}, "weight has shape")],
)
def test_pilots_that_do_not_fit(sent: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InvalidWeights, match=message):
        noise_power_from_pilots(nn.Linear(2, 2), sent)


@pytest.mark.parametrize("values", [[0.0, 0.0], (0.0,), None, "0"])
def test_pilots_that_are_neither_tensor_nor_number(values: object) -> None:
    with pytest.raises(InvalidConfig, match=f"what was sent as weight is a {type(values).__name__}; give a tensor"):
        noise_power_from_pilots(nn.Linear(2, 2), {"weight": values})


@pytest.mark.parametrize("name", ["1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"])
@pytest.mark.parametrize("as_state", [False, True])
def test_pilots_on_tensors_that_carry_no_noise(name: str, as_state: bool) -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    received = network.state_dict() if as_state else network
    with pytest.raises(InvalidConfig, match=f"{name} arrives without noise"):
        noise_power_from_pilots(received, {name: 0.0})
    assert noise_power_from_pilots(received, {"0.bias": 0.0}).variance > 0
    assert noise_power_from_pilots(received, {"1.weight": 0.0}, noisy=["1.weight"]).variance == 1.0


def test_pilots_of_a_network_without_a_name() -> None:
    with pytest.raises(InvalidConfig, match="say which"):
        noise_power_from_pilots(nn.Linear(2, 2), 0.0)


def test_a_pilot_that_did_not_arrive() -> None:
    with pytest.raises(InvalidWeights, match="finite"):
        noise_power_from_pilots(torch.tensor([torch.inf, 1.0]), 0.0)


def test_one_reception_or_the_same_twice() -> None:
    tensor = torch.randn(5)
    with pytest.raises(InvalidConfig, match="1 reception cannot"):
        noise_power_from_receptions([tensor])
    with pytest.raises(InvalidConfig, match="given twice"):
        noise_power_from_receptions([tensor, tensor])


def test_receptions_of_two_networks() -> None:
    with pytest.raises(InvalidWeights):
        noise_power_from_receptions([nn.Linear(2, 2), nn.Linear(2, 3)])
