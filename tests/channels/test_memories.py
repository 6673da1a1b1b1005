"""Phase-change and resistive memory: gain and noise as predicted, drift, and what is refused."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from quietnn.channels.memories import PCM, SPREADS, ReRAM
from quietnn.channels.moments import ErrorMoments
from quietnn.errors import InvalidConfig
from quietnn.noise import mean_of

DAY = 86_400.0
DEVICES = [PCM(0.0), PCM(3600.0), PCM(365 * DAY), PCM(DAY, compensate=False), *(ReRAM(time) for time in SPREADS)]


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_gain_and_noise_are_as_predicted(device: PCM | ReRAM, shapes: dict[str, Tensor]) -> None:
    observation = device.transmit(shapes, seed=1)
    assert isinstance(observation.noise_variance, dict)
    assert isinstance(observation.gain, dict)
    for name, tensor in shapes.items():
        measured = ErrorMoments.of(tensor, observation.received[name])
        assert observation.gain[name] == pytest.approx(measured.gain, rel=0.02)
        assert mean_of(observation.noise_variance[name]) == pytest.approx(measured.noise_variance, rel=0.05)


def test_drift_shrinks_the_weights_and_compensation_restores_them(shapes: dict[str, Tensor]) -> None:
    shrunk = PCM(365 * DAY, compensate=False).transmit(shapes, seed=0)
    mended = PCM(365 * DAY).transmit(shapes, seed=0)
    for name, tensor in shapes.items():
        assert ErrorMoments.of(tensor, shrunk.received[name]).gain < 0.6
        assert ErrorMoments.of(tensor, mended.received[name]).gain == pytest.approx(1.0, abs=0.08)
        kept = shrunk.received[name] != 0
        ratio = mended.received[name][kept] / shrunk.received[name][kept]
        assert float(ratio.max()) == pytest.approx(float(ratio.min()), rel=1e-4)


@pytest.mark.parametrize(("drift", "apart"), [(3.0, 0.05), (10.0, 0.05), (100.0, 0.5)])
def test_scaled_drift_has_a_gain_and_a_noise_that_are_numbers(
    drift: float, apart: float, shapes: dict[str, Tensor]
) -> None:
    """`exp` of the drift's variance overflows on its own; the few weights that a hundredfold drift leaves vary."""
    large = {"w": shapes["gaussian"].repeat(8, 1, 1, 1)}
    observation = PCM(365 * DAY, drift=drift).transmit(large, seed=0)
    assert isinstance(observation.noise_variance, dict)
    assert isinstance(observation.gain, dict)
    measured = ErrorMoments.of(large["w"], observation.received["w"])
    assert observation.gain["w"] == pytest.approx(measured.gain, rel=apart)
    assert mean_of(observation.noise_variance["w"]) == pytest.approx(measured.noise_variance, rel=apart)


def test_noise_grows_with_time(shapes: dict[str, Tensor]) -> None:
    for times in ((0.0, 3600.0, DAY, 365 * DAY),):
        noises = [PCM(time).predict(shapes["gaussian"]).noise_variance for time in times]
        assert noises == sorted(noises)
    assert ReRAM(DAY).predict(shapes["gaussian"]).noise_variance > ReRAM(1.0).predict(shapes["gaussian"]).noise_variance


def test_the_error_of_writing_depends_on_the_conductance() -> None:
    """sigma(0) = 0.26 uS, sigma(g_max) = 1.06 uS of 25 uS; the device at zero loses the negative half of its error."""
    weights = torch.tensor([1.0, 0.5]).repeat_interleave(200_000)
    device = PCM(0.0, reading=0.0)
    read, _ = device.store(weights, seed=0, name="w")
    for place, target in ((slice(0, 200_000), 1.0), (slice(200_000, None), 0.5)):
        sigma = (0.26348 + 1.9650 * target - 1.1731 * target**2) / 25
        at_zero = 0.26348**2 / 25**2 * (0.5 - 1 / (2 * torch.pi))
        assert float(read[place].var()) == pytest.approx(sigma**2 + at_zero, rel=0.02)
        assert float(read[place].mean()) == pytest.approx(target - 0.26348 / 25 / (2 * torch.pi) ** 0.5, rel=0.002)


def test_bad_settings_are_refused() -> None:
    bad: list[dict[str, Any]] = [
        {"seconds": -1.0},
        {"programming": -1.0},
        {"seconds": float("inf")},
        {"seconds": "day"},
    ]
    for change in bad:
        with pytest.raises(InvalidConfig, match="give 0 to"):
            dataclasses.replace(PCM(0.0), **change)
    for seconds in (3600.0, float("nan"), "day", [1.0], None):
        with pytest.raises(InvalidConfig, match=r"measured at 1, 86400, 172800 seconds only"):
            ReRAM(seconds)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="spread is nan; give 0 to 1000; 0 is none, 1 is as measured"):
        ReRAM(spread=float("nan"))


def test_tiles_have_a_range_each() -> None:
    """A large weight far away costs nothing: its tile is another."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(64, 96, generator=generator)
    weights[0, 95] = 100.0
    errors = {}
    for tile in (0, 32):
        observation = PCM(DAY, tile=tile).transmit({"w": weights}, seed=1)
        received = observation.at_unit_gain().received["w"]
        errors[tile] = (received - weights)[:, :32].square().mean()
        told = torch.as_tensor(observation.noise_variance["w"]).expand_as(weights)[:, :32].mean()  # type: ignore[index]
        assert float(told / errors[tile]) == pytest.approx(1.0, rel=0.5 if tile == 0 else 0.15)
    assert errors[32] < errors[0] / 20
    one = PCM(DAY, tile=96).transmit({"w": weights}, seed=1).received["w"]
    assert torch.equal(one, PCM(DAY).transmit({"w": weights}, seed=1).received["w"])
