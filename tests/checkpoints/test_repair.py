"""A network that was repaired in memory, back in the file that it came from."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import quietnn
from quietnn.channels.quantisation import Quantisation
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.opening import open_checkpoint
from quietnn.checkpoints.repair import observe_checkpoint, write_beside, write_repaired
from quietnn.checkpoints.transmit import transmit_checkpoint_through
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.repairs.base import Repaired
from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.front import repair


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


@pytest.fixture
def noisy(tmp_path: Path, network: nn.Sequential) -> Path:
    """The network's weights, once they went through a quantiser that has a gain and an offset."""
    clean, noisy = tmp_path / "clean.safetensors", tmp_path / "noisy.safetensors"
    save_file(network.state_dict(), clean)
    transmit_checkpoint_through(clean, noisy, channel=Quantisation(2), description="quantise:num_bits=2", seed=0)
    return noisy


def test_what_the_file_records_is_what_memory_tells(network: nn.Sequential, noisy: Path) -> None:
    expected = quietnn.transmit(network, channel=Quantisation(2), seed=0)
    network.load_state_dict(load_file(noisy))
    observation = observe_checkpoint(noisy, network, recorded=True)
    assert observation.noise_variance == expected.noise_variance
    assert observation.gain == expected.gain
    assert observation.offset == expected.offset
    assert set(observation.noisy or ()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_noise_is_given_once(network: nn.Sequential, noisy: Path) -> None:
    assert observe_checkpoint(noisy, network, noise_variance=0.1).noise_variance == 0.1
    with pytest.raises(InvalidConfig, match="leave out --recorded, or the number"):
        observe_checkpoint(noisy, network, wnr_db=3.0, recorded=True)
    with pytest.raises(InvalidWeights, match=r"records noise on '0.bias', and the network has no parameter"):
        observe_checkpoint(noisy, nn.Sequential(nn.ReLU(), nn.Linear(5, 2)), recorded=True)


def test_only_what_changed_is_written(network: nn.Sequential, noisy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    network.load_state_dict(load_file(noisy))
    with torch.no_grad():
        network[2].weight.add_(1.0)
        network[1].running_mean.add_(1.0)
    changed = write_repaired(noisy, out, Repaired(network, "by hand", 3.0, {}))
    assert set(changed) == {"1.running_mean", "2.weight"}
    found, before = load_file(out), load_file(noisy)
    assert all(torch.equal(found[name], tensor) for name, tensor in network.state_dict().items())
    assert all(torch.equal(found[name], before[name]) for name in found if name not in changed)
    told = inspect_checkpoint(out).checkpoint.history[-1]
    assert (told["verb"], told["method"], told["passes"], set(told["tensors"])) == (
        "repair",
        "by hand",
        3.0,
        set(changed),
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Sequential(nn.Linear(6, 4)), "0.bias has shape"),
        (nn.ModuleDict({"head": nn.Linear(2, 2)}), "calls a tensor 'head.weight'"),
    ],
)
def test_a_network_of_another_kind(noisy: Path, tmp_path: Path, other: nn.Module, message: str) -> None:
    with pytest.raises(InvalidWeights, match=message):
        write_repaired(noisy, tmp_path / "out.safetensors", Repaired(other, "by hand", 0.0, {}))
    assert not (tmp_path / "out.safetensors").exists()


def test_values_that_are_not_finite(network: nn.Sequential, noisy: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        network[0].weight[0, 0] = torch.nan
    with pytest.raises(InvalidWeights, match=r"0.weight is not finite after the repair"):
        write_repaired(noisy, tmp_path / "out.safetensors", Repaired(network, "by hand", 0.0, {}))
    assert len(open_checkpoint(noisy).history) == 1


def test_what_stands_beside_a_folder_is_an_adapter(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "in")
    repaired = repair(model, method="mmse_layerwise", wnr_db=3.0, trainable="digital")
    write_beside(tmp_path / "in", tmp_path / "adapter", repaired, model)
    tokens = torch.arange(12).view(2, 6)
    expected = repaired.model(tokens).logits
    found = peft.PeftModel.from_pretrained(model, str(tmp_path / "adapter")).eval()(tokens).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_what_stands_beside_a_file_is_written_as_safetensors(
    network: nn.Sequential, noisy: Path, tmp_path: Path
) -> None:
    repaired = repair(network, method="mmse", wnr_db=3.0, trainable="digital")
    write_beside(noisy, tmp_path / "beside.safetensors", repaired, network)
    assert repr(Beside.from_state_dict(load_file(tmp_path / "beside.safetensors"))) == repr(repaired.beside)
    with pytest.raises(InvalidConfig, match=r"name it beside\.safetensors"):
        write_beside(noisy, tmp_path / "beside.pt", repaired, network)
    assert not (tmp_path / "beside.pt").exists()
