"""Repairs put back beside aihwkit's arrays."""

import pytest
import torch
from tests.analog.conftest import analog
from torch import Tensor, nn

import quietnn
from quietnn.analog.readout import read_out
from quietnn.analog.writing import write_back
from quietnn.errors import InvalidConfig

YEAR = 3.15e7


@pytest.mark.analog
@pytest.mark.parametrize("compensated", [True, False])
@pytest.mark.parametrize("method", ["re_estimated", "calibrated", "posterior_digital", "posterior_adapter"])
def test_the_chip_computes_what_the_repaired_twin_does(
    method: str, compensated: bool, network: nn.Module, examples: tuple[Tensor, Tensor]
) -> None:
    chip = analog(network, compensated=compensated, seconds=YEAR, max_input_size=5, max_output_size=10)
    stored = [tile.tile.get_weights() for tile in chip.analog_tiles()]
    before = chip(examples[0])
    made = quietnn.repair(read_out(chip, seconds=YEAR), *examples, method=method)
    back = write_back(chip, made, observation=read_out(chip, seconds=YEAR))
    assert torch.allclose(back(examples[0]), made.model(examples[0]), atol=1e-4)
    for own, tile in zip(stored, back.analog_tiles(), strict=True):
        assert torch.equal(own, tile.tile.get_weights())
    assert torch.equal(chip(examples[0]), before)
    assert not torch.equal(back(examples[0]), before)


@pytest.mark.analog
def test_an_addition_beside_a_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(24, 3)).eval()
    chip, inputs = analog(model, seconds=60.0), torch.randn(30, 4, 4, 4)
    made = quietnn.repair(read_out(chip, seconds=60.0), inputs, torch.arange(30) % 3, method="posterior_adapter")
    assert "0.weight" in made.beside.low_rank
    back = write_back(chip, made, observation=read_out(chip, seconds=60.0))
    assert torch.allclose(back(inputs), made.model(inputs), atol=1e-4)


@pytest.mark.analog
def test_ours_by_column_beats_global_compensation(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    inputs, labels = examples
    losses = []
    for seed in range(3):
        chip = analog(network, writing=6.0)
        torch.manual_seed(seed)
        chip.program_analog_weights()
        chip.drift_analog_weights(YEAR)
        observation = read_out(chip, seconds=YEAR)
        fit, rest = slice(0, None, 2), slice(1, None, 2)
        made = quietnn.repair(observation, inputs[fit], labels[fit], method="posterior_digital")
        back = write_back(chip, made, observation=observation)
        with torch.no_grad():
            losses.append([nn.functional.cross_entropy(one(inputs[rest]), labels[rest]).item() for one in (back, chip)])
    ours, theirs = torch.tensor(losses).mean(dim=0)
    assert ours < theirs


@pytest.mark.analog
def test_weights_that_were_changed_are_refused(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    chip = analog(network, seconds=YEAR)
    observation = read_out(chip, seconds=YEAR)
    made = quietnn.posterior(observation, *examples)
    with pytest.raises(InvalidConfig, match=r"posterior has rewritten the weights.*trainable='digital'"):
        write_back(chip, made, observation=observation)
    other = quietnn.repair(nn.Linear(2, 2), noise_variance=0.1)
    with pytest.raises(InvalidConfig, match="another network"):
        write_back(chip, other)
