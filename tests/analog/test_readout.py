"""Weights read out of aihwkit's tiles."""

import pytest
import torch
from tests.analog.conftest import analog, images
from torch import Tensor, nn

import quietnn
from quietnn.analog.readout import read_out
from quietnn.errors import InvalidConfig
from quietnn.noise import mean_of

YEAR = 3.15e7


def wide() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(120, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Linear(80, 60)).eval()


@pytest.mark.analog
def test_before_programming_the_weights_are_exact() -> None:
    model = images()
    found = read_out(analog(model, max_input_size=20))
    assert torch.allclose(found.weights["0.weight"], model[0].weight, atol=1e-6)
    assert found.mean_noise_variance == 0.0


@pytest.mark.analog
@pytest.mark.parametrize("compensated", [True, False])
def test_the_twin_computes_what_the_chip_does(compensated: bool) -> None:
    chip = analog(images(), compensated=compensated, seconds=YEAR, max_input_size=20, max_output_size=4)
    inputs = torch.randn(6, 3, 4, 4)
    found = read_out(chip, seconds=YEAR)
    assert torch.allclose(found.received(inputs), chip(inputs), atol=1e-5)
    assert [*found.weights] == ["0.weight", "4.weight"]


@pytest.mark.analog
@pytest.mark.parametrize("compensated", [True, False])
def test_the_noise_variance_is_that_of_the_noise(compensated: bool) -> None:
    model = wide()
    found = read_out(analog(model, compensated=compensated, seconds=YEAR), seconds=YEAR).at_unit_gain()
    for name in ("0.weight", "3.weight"):
        error = (found.weights[name] - model.get_parameter(name).detach()).var()
        assert mean_of(found.noise_variance[name]) == pytest.approx(float(error), rel=0.25)


@pytest.mark.analog
@pytest.mark.parametrize("seconds", [3600.0, YEAR])
def test_compensation_tells_the_age(seconds: float) -> None:
    chip = analog(wide(), seconds=seconds)
    told, guessed = read_out(chip, seconds=seconds), read_out(chip)
    assert guessed.mean_noise_variance == pytest.approx(told.mean_noise_variance, rel=0.25)


@pytest.mark.analog
def test_without_compensation_the_noise_is_unknown() -> None:
    found = read_out(analog(wide(), compensated=False, seconds=YEAR))
    assert found.noise_variance is None


@pytest.mark.analog
def test_noisy_readouts_are_averaged() -> None:
    chip = analog(wide(), seconds=60.0)
    for tile in chip.analog_tiles():
        tile.rpu_config.forward.is_perfect = False
    exact, one, many = (read_out(chip, seconds=60.0, readouts=number) for number in (0, 1, 8))
    errors = [(found.weights["0.weight"] - exact.weights["0.weight"]).var() for found in (one, many)]
    assert 0 < errors[1] < errors[0] / 3
    added = mean_of(many.noise_variance["0.weight"]) - mean_of(exact.noise_variance["0.weight"])
    assert added == pytest.approx(float(errors[1]), rel=0.6)


@pytest.mark.analog
def test_repair_takes_the_chip_itself(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    chip = analog(network, seconds=YEAR)
    made = quietnn.repair(chip, examples[0], method="calibrated")
    assert torch.equal(made.model[0].weight, read_out(chip).at_unit_gain().weights["0.weight"])


@pytest.mark.analog
def test_what_does_not_fit() -> None:
    with pytest.raises(InvalidConfig, match="no analog tiles"):
        read_out(nn.Linear(2, 2))
    with pytest.raises(InvalidConfig, match="seconds is -1"):
        read_out(analog(nn.Sequential(nn.Linear(2, 2))), seconds=-1.0)
