"""What stands beside a network: saved and loaded, counted, and refused where it does not fit."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.repairs.blobs import blobs, norm_net, plain_net
from torch import Tensor, nn

from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.observation import Observation
from quietnn.repairs.auto import FEWEST_EXAMPLES
from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.front import repair
from quietnn.targets import with_weights


def chip(network: nn.Module) -> Observation[nn.Module, float]:
    """A network whose weights were multiplied and shifted on their way."""
    observation = transmit(network, wnr_db=0.0, seed=2)
    distorted = {name: 0.5 * one + 0.02 for name, one in observation.weights.items()}
    return Observation(with_weights(network, distorted), observation.noise_variance, 0.5, 0.02)


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    observation = chip(norm_net())
    inputs, labels = blobs()
    result = repair(observation, inputs, labels, method="posterior", trainable="adapter", rank=2)
    save_file(result.beside.state_dict(), tmp_path / "beside.safetensors")
    loaded = Beside.from_state_dict(load_file(tmp_path / "beside.safetensors"))
    assert repr(loaded) == repr(result.beside)
    assert loaded.state_dict().keys() == result.beside.state_dict().keys()
    assert torch.equal(loaded.wrap(observation.received)(inputs), result.beside.wrap(observation.received)(inputs))


def test_the_weights_of_a_wrapped_network_are_those_of_the_chip_to_the_bit() -> None:
    observation = chip(norm_net())
    result = repair(observation, *blobs(), method="posterior", trainable="digital")
    wrapped = result.beside.wrap(observation.received).state_dict()
    for name, weight in observation.weights.items():
        layer, _, key = name.rpartition(".")
        assert torch.equal(wrapped[f"{layer}.layer.{key}"], weight)
    assert any(
        not torch.equal(wrapped[f"1.{key}"], observation.received.state_dict()[f"1.{key}"]) for key in ("weight",)
    )


def test_an_offset_is_one_rank_and_a_gain_one_factor() -> None:
    observation = chip(plain_net())
    beside = repair(observation, method="mmse", trainable="digital").beside
    up, down = beside.low_rank["0.weight"]
    assert (up.shape, down.shape) == ((16, 1), (1, 8))
    assert torch.equal(down, torch.ones(1, 8))
    assert beside.scales["0.weight"].shape == (16, 1)


def test_parameters_are_counted_and_statistics_are_none() -> None:
    pair = torch.zeros(3, 2), torch.zeros(2, 4)
    beside = Beside({"0.weight": torch.ones(3, 1)}, {"0.weight": pair}, {"0.bias": torch.ones(3)}, {"m": torch.ones(9)})
    assert beside.num_parameters == 3 + 6 + 8 + 3
    assert beside.share(nn.Linear(4, 3)) == pytest.approx(20 / 15)


FITS = Beside({"0.weight": torch.ones(3, 1)}, {"0.weight": (torch.zeros(3, 2), torch.zeros(2, 4))})


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (Beside({"9.weight": torch.ones(3, 1)}), "'9.weight' is not a tensor of this model"),
        (Beside(low_rank={"9.weight": (torch.ones(3, 1), torch.ones(1, 4))}), "beside.wrap(observation.received)"),
        (Beside(replaced={"0.scale": torch.ones(3)}), "its tensors are 0.weight, 0.bias"),
        (Beside({"0.weight": torch.ones(5, 1)}), "is for shape (5, 1), and the model has (3, 4)"),
        (Beside({"0.weight": torch.ones(3)}), "is for shape (3,), and the model has (3, 4)"),
        (Beside(low_rank={"0.weight": (torch.ones(3, 1), torch.ones(1, 9))}), "is for shape (3, 9)"),
        (Beside(replaced={"0.bias": torch.ones(4)}), "is for shape (4,), and the model has (3,)"),
    ],
)
def test_a_network_of_another_kind_is_refused(beside: Beside, message: str) -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    FITS.check_fits(network)
    for use in (beside.wrap, beside.merge):
        with pytest.raises(InvalidWeights, match=re.escape(message)):
            use(network)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"0.weight": torch.ones(1)}, "'0.weight' is no name"),
        ({"scales": torch.ones(1)}, "'scales' is no name"),
        ({"low_rank_B.0.weight": torch.ones(1, 1)}, "only one of B and A"),
    ],
)
def test_a_dict_of_another_kind_is_refused(state: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        Beside.from_state_dict(state)


def test_auto_judges_what_can_stand_beside_the_weights() -> None:
    observation = chip(norm_net())
    inputs, labels = blobs()
    assert len(labels) > FEWEST_EXAMPLES
    result = repair(observation, inputs, labels, trainable="digital")
    assert result.name == result.details["chosen"] != "ml"
    wrapped = result.beside.wrap(observation.received)
    with torch.no_grad():
        torch.testing.assert_close(wrapped(inputs), result.model(inputs), atol=1e-5, rtol=1e-5)
        assert float((wrapped(inputs).argmax(1) == labels).float().mean()) > 0.9


def test_without_labels_auto_takes_only_what_leaves_the_weights() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)).eval()
    images = torch.randn(50, 1, 8, 8)
    network.train()(images)
    observation = transmit(network.eval(), wnr_db=-12.0, seed=1)
    assert repair(observation, images).name == "structured"
    result = repair(observation, images, trainable="digital")
    assert result.name == "calibrated"
    assert not result.beside.scales
    assert [one.name for one in result.details["tried"] if one.failed] == ["structured"]
