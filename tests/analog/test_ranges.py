"""Input ranges that fit a few inputs."""

import pytest
import torch
from tests.analog.conftest import images
from torch import nn

from quietnn.analog.converter import Converter
from quietnn.analog.hardware import arrays, on_hardware
from quietnn.analog.ranges import calibrate_ranges
from quietnn.errors import InvalidConfig, QuietnnError


def heavy_tailed(num_inputs: int = 400) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(num_inputs, 12, generator=generator)
    return drawn * torch.randn(num_inputs, 12, generator=generator).square()


def errors(chip: nn.Module, layer: nn.Module, inputs: torch.Tensor) -> float:
    with torch.no_grad():
        return float((chip(inputs) - layer(inputs)).square().mean())


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_range_of_the_smallest_error_beats_the_largest_and_the_fixed_one(noise: float) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(12, 5), heavy_tailed()
    converter = Converter(input_bits=4, output_noise=noise)
    chip = on_hardware(layer, converter)
    found = {
        by: errors(calibrate_ranges(chip, inputs[:100], by=by), layer, inputs[100:]) for by in ("error", "largest")
    }
    assert found["error"] < 0.7 * found["largest"]
    assert found["error"] < 1.1 * errors(chip, layer, inputs[100:])


def test_more_noise_takes_a_smaller_range() -> None:
    layer, inputs = nn.Linear(12, 5), heavy_tailed()
    ranges = [
        arrays(calibrate_ranges(on_hardware(layer, Converter(output_noise=noise)), inputs))[""].input_range
        for noise in (0.0, 0.5)
    ]
    assert ranges[1] < ranges[0]


def test_a_share_is_a_quantile() -> None:
    inputs = torch.linspace(-1, 1, 1001)[:, None]
    chip = calibrate_ranges(on_hardware(nn.Linear(1, 1)), inputs[::4], by=0.5)
    assert arrays(chip)[""].input_range == pytest.approx(0.5, abs=0.01)


def test_every_layer_has_a_range_of_its_own_and_the_network_is_left_alone() -> None:
    chip = on_hardware(images())
    found = arrays(calibrate_ranges(chip, torch.randn(8, 3, 4, 4)))
    assert found["0"].input_range != found["4"].input_range
    assert {array.input_range for array in arrays(chip).values()} == {3.0}


def test_what_does_not_fit() -> None:
    with pytest.raises(InvalidConfig, match="'error', 'largest' or a share"):
        calibrate_ranges(on_hardware(nn.Linear(1, 1)), torch.ones(2, 1), by=2.0)
    with pytest.raises(QuietnnError, match="not on hardware"):
        calibrate_ranges(nn.Linear(1, 1), torch.ones(2, 1))
