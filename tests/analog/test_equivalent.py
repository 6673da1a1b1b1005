"""Noise of the computation, told as noise of the weights."""

import pytest
import torch
from tests.analog.conftest import images
from torch import Tensor, nn

import quietnn
from quietnn.analog.converter import Converter
from quietnn.analog.equivalent import observed_on_hardware, units_of, with_converter_noise
from quietnn.analog.hardware import arrays, on_hardware
from quietnn.channels.memories import PCM

NOISY = Converter(input_bits=0, output_bits=0, input_range=4.0, output_range=1e6, output_noise=0.2)


def test_it_adds_the_same_variance_to_every_output() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(40, 3), torch.randn(4000, 40)
    observation = with_converter_noise(on_hardware(layer, NOISY), inputs)
    noise = observation.noise_variance["weight"].flatten()
    expected = noise * inputs.var(dim=0).sum()
    measured = (on_hardware(layer, NOISY)(inputs) - layer(inputs)).var(dim=0)
    assert torch.allclose(expected, measured, rtol=0.1)
    assert observation.noise_variance["bias"] == 0.0


def test_it_is_added_to_what_is_told_of_the_weights(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    chip = on_hardware(network, NOISY)
    alone = with_converter_noise(chip, examples[0]).noise_variance["0.weight"]
    both = with_converter_noise(chip, examples[0], noise_variance=0.5).noise_variance["0.weight"]
    assert torch.allclose(both, alone + 0.5)


def test_calibration_then_counts_the_noise_of_the_computation(
    network: nn.Module, examples: tuple[Tensor, Tensor]
) -> None:
    inputs = examples[0]
    chip = on_hardware(network, NOISY)
    blind = quietnn.calibrate(chip, inputs, noise_variance=0.0).model
    aware = quietnn.calibrate(with_converter_noise(chip, inputs), inputs).model
    with torch.no_grad():
        measured = on_hardware(network, NOISY, seed=9)[0](inputs).var(dim=0)
    assert torch.equal(blind[1].running_var, network[1].running_var)
    off = [(one[1].running_var / measured).log().square().mean() for one in (blind, aware)]
    assert off[1] < 0.5 * off[0]


def test_what_drift_took_makes_the_noise_larger() -> None:
    model = images()
    fresh, old = (
        units_of(model, converter="8-bit"),
        units_of(model, {"0.weight": 0.5, "4.weight": 1.0}, converter="8-bit"),
    )
    assert torch.equal(old["0.weight"], 2 * fresh["0.weight"])
    assert torch.equal(old["4.weight"], fresh["4.weight"])


@pytest.mark.parametrize("compensate", [True, False])
def test_a_memory_on_hardware(compensate: bool) -> None:
    model, inputs = images(), torch.randn(12, 3, 4, 4)
    memory = PCM(seconds=3.0e7, compensate=compensate)
    observation = quietnn.transmit(model, channel=memory, seed=0)
    found = observed_on_hardware(observation, "8-bit", inputs, written=(model, memory))
    lost = memory.predict(model[0].weight).gain
    assert torch.equal(found.weights["0.weight"], observation.at_unit_gain().weights["0.weight"])
    unit = arrays(found.model)["0"].unit
    assert torch.allclose(unit[0], model[0].weight.flatten(1).abs().amax(dim=1) / lost)
    factor = arrays(found.as_received.model)["0"].unit / unit
    assert float(factor.mean()) == pytest.approx(observation.gain["0.weight"], rel=1e-5)
    assert found.mean_noise_variance > observation.at_unit_gain().mean_noise_variance
