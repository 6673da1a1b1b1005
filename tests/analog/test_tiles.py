"""The tiles of aihwkit."""

import sys

import pytest
import torch
from tests.analog.conftest import analog, images
from torch import nn

from quietnn.analog.tiles import analog_layers, tiles_of
from quietnn.errors import InvalidConfig, MissingData


@pytest.mark.analog
def test_the_tiles_of_a_layer_cover_its_weight_once() -> None:
    model = images()
    chip = analog(model, max_input_size=40, max_output_size=3)
    layer = analog_layers(chip)["4"]
    covered = torch.zeros(4, 96)
    weight = torch.zeros(4, 96)
    for tile in tiles_of(layer):
        covered[tile.rows, tile.columns] += 1
        weight[tile.rows, tile.columns] = tile.stored * tile.scales[:, None]
    assert bool((covered == 1).all())
    assert torch.allclose(weight, model[4].weight, atol=1e-6)


@pytest.mark.analog
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("omega", [0.0, 1.0])
def test_factors_go_into_digital_scales(learned: bool, omega: float) -> None:
    model = nn.Sequential(nn.Linear(5, 3))
    settings = {"learn_out_scaling": learned, "out_scaling_columnwise": True, "weight_scaling_omega": omega}
    chip, inputs = analog(model, **settings), torch.randn(4, 5)
    factors = torch.tensor([1.0, 2.0, -3.0])
    expected = (chip(inputs) - model[0].bias) * factors + model[0].bias
    (tile,) = tiles_of(chip[0])
    before = tile.stored
    tile.multiply(factors)
    assert torch.allclose(chip(inputs), expected, atol=1e-5)
    assert torch.equal(tile.stored, before)


@pytest.mark.analog
def test_a_network_without_tiles() -> None:
    with pytest.raises(InvalidConfig, match=r"no analog tiles in this Linear.*convert_to_analog"):
        analog_layers(nn.Linear(2, 2))


def test_without_aihwkit_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aihwkit.nn", None)
    with pytest.raises(MissingData, match=r"pip install --no-deps aihwkit==1.1.0.*from_readouts"):
        analog_layers(nn.Linear(2, 2))
