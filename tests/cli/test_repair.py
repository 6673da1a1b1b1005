"""`quietnn repair`: a noisy file or folder in, a repaired one of the same kind out."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import quietnn
from quietnn.checkpoints.history import history
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.repairs.base import REPAIRS
from quietnn.tasks.digits import digits_task

RUN = CliRunner()

OWN = """
from torch import nn
import torch
from quietnn import Examples, Task

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)).eval()

def examples(num_examples, seed):
    labels = torch.arange(num_examples) % 3
    inputs = torch.eye(6)[labels] + 0.1 * torch.randn(num_examples, 6, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs, labels)

def task():
    return Task("mine", network, examples, lambda num_examples: examples(num_examples or 60, 99))
"""


def call(*arguments: object) -> str:
    result = RUN.invoke(app, ["repair", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """Weights of the digits' network that went through a channel with a gain, as `quietnn transmit` leaves them."""
    clean, noisy = tmp_path / "clean.safetensors", tmp_path / "noisy.safetensors"
    save_file(digits_task().load_model().state_dict(), clean, metadata={"note": "kept", "format": "pt"})
    assert (
        RUN.invoke(
            app, ["transmit", str(clean), str(noisy), "--seed", "0", "--channel", "quantise:num_bits=2"]
        ).exit_code
        == 0
    )
    return noisy


def test_what_the_channel_recorded_is_used_gain_and_all_and_the_file_keeps_its_metadata(
    tmp_path: Path, sent: Path
) -> None:
    out = tmp_path / "out.safetensors"
    call(sent, out, "--task", "digits", "--recorded", "--method", "calibrated")
    with safe_open(out, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["note"] == "kept"
    assert [step["verb"] for step in history(metadata)] == ["transmit", "repair"]
    observation = quietnn.transmit(digits_task().load_model(), channel="quantise:num_bits=2", seed=0)
    examples = digits_task().tuning_examples(100, 0)
    expected = quietnn.calibrate(observation, examples.inputs).model.state_dict()
    written = load_file(out)
    assert all(torch.allclose(written[name].float(), tensor.float(), atol=1e-5) for name, tensor in expected.items())


def test_a_network_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_repair.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 3)
    )
    save_file(network.state_dict(), tmp_path / "in.safetensors")
    told = call("in.safetensors", "out.safetensors", "--task", "mine_for_repair:task", "--wnr-db", 3, "--no-labels")
    assert "* calibrated" in told
    assert "wrote out.safetensors: calibrated" in told


def test_without_a_task_closed_forms_go_from_file_to_file(tmp_path: Path, sent: Path) -> None:
    call(sent, tmp_path / "out.safetensors", "--method", "mmse_layerwise", "--wnr-db", 3)
    assert load_file(tmp_path / "out.safetensors").keys() == load_file(sent).keys()
    with pytest.raises(InvalidConfig, match=r"add --task digits.*--method ml or mmse or mmse_layerwise"):
        call(sent, tmp_path / "other.safetensors", "--wnr-db", 3)
    assert not (tmp_path / "other.safetensors").exists()


def test_a_wrong_method_lists_all_there_are(tmp_path: Path, sent: Path) -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'posterior'") as caught:
        call(sent, tmp_path / "out.safetensors", "--task", "digits", "--method", "posteriour")
    assert all(name in str(caught.value) for name in REPAIRS)


def test_a_folder_of_transformers_comes_out_as_one(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "in")
    call(tmp_path / "in", tmp_path / "out", "--method", "mmse_layerwise", "--wnr-db", 3)
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "out")
    received = load_file(tmp_path / "in" / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    assert not torch.equal(loaded.state_dict()[name], received[name])


def test_a_network_whose_names_are_not_the_files_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = OWN.replace("def task():", "def task(weights=None):").replace(
        'Task("mine", network,',
        """Task(
        "mine", lambda: nn.Sequential(network()).eval(),""",
    )
    (tmp_path / "wrapped_for_repair.py").write_text(wrapped)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 3)
    )
    save_file(network.state_dict(), tmp_path / "in.safetensors")
    with pytest.raises(InvalidWeights, match=r"calls a tensor '0.0.weight'"):
        call("in.safetensors", "out.safetensors", "--task", "wrapped_for_repair:task", "--wnr-db", 3, "--no-labels")
    assert not (tmp_path / "out.safetensors").exists()


def test_a_folder_does_not_become_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save_file(digits_task().load_model().state_dict(), tmp_path / "in" / "model.safetensors")
    with pytest.raises(InvalidConfig, match="give the name of a folder"):
        call(tmp_path / "in", tmp_path / "out.safetensors", "--method", "mmse", "--wnr-db", 3)


def test_what_stands_beside_weights_is_written_in_their_place(tmp_path: Path, sent: Path) -> None:
    out = tmp_path / "beside.safetensors"
    asked = ("--task", "digits", "--recorded", "--method", "calibrated", "--trainable", "digital")
    told = call(sent, out, *asked)
    assert "of the parameters beside the weights, which stay" in told
    received = digits_task().load_model()
    received.load_state_dict(load_file(sent))
    beside = quietnn.Beside.from_state_dict(load_file(out))
    observation = quietnn.transmit(digits_task().load_model(), channel="quantise:num_bits=2", seed=0)
    inputs = digits_task().tuning_examples(100, 0).inputs
    expected = quietnn.calibrate(observation, inputs).model
    torch.testing.assert_close(beside.wrap(received)(inputs), expected(inputs), atol=1e-4, rtol=1e-4)
    with pytest.raises(InvalidConfig, match="--overwrite"):
        call(sent, out, *asked)


def test_what_stands_beside_needs_the_network(tmp_path: Path, sent: Path) -> None:
    with pytest.raises(InvalidConfig, match="add --task NAME"):
        call(sent, tmp_path / "out.safetensors", "--method", "mmse", "--wnr-db", 3, "--trainable", "digital")
    with pytest.raises(InvalidConfig, match="trainable='adapter', rank=2"):
        call(sent, tmp_path / "out.safetensors", "--task", "digits", "--rank", 2)


def test_what_stands_beside_a_pt_file_is_safetensors_which_is_said_before_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(digits_task().load_model().state_dict(), tmp_path / "noisy.pt")
    asked = ("--task", "digits", "--noise-variance", 1e-4, "--method", "calibrated", "--trainable", "digital")
    call(tmp_path / "noisy.pt", tmp_path / "beside.safetensors", *asked)
    assert quietnn.Beside.from_state_dict(load_file(tmp_path / "beside.safetensors")).num_parameters >= 0
    monkeypatch.setattr("quietnn.repairs.front.repair", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InvalidConfig, match=r"name it beside\.safetensors"):
        call(tmp_path / "noisy.pt", tmp_path / "beside.pt", *asked)


def test_the_clean_weights_teach_and_what_they_teach_stands_beside(sent: Path, tmp_path: Path) -> None:
    out, clean = tmp_path / "beside.safetensors", tmp_path / "clean.safetensors"
    asked = ("--teacher", clean, "--recorded", "--method", "matched")
    told = call(sent, out, "--task", "digits", *asked, "--trainable", "digital")
    assert "matched" in told
    assert "beside the weights, which stay" in told
    beside = quietnn.Beside.from_state_dict(load_file(out))
    task = digits_task()
    chip = task.load_model()
    chip.load_state_dict(load_file(sent))
    losses = [task.score_of(one, task.test_examples(200)).loss for one in (chip, beside.wrap(chip))]
    assert losses[1] < losses[0]
    with pytest.raises(InvalidConfig, match="--teacher tells of a task's inputs; add --task NAME"):
        call(sent, tmp_path / "other.safetensors", *asked)
    with pytest.raises(InvalidConfig, match=r"needs the clean network as a teacher.*teacher=clean"):
        call(sent, tmp_path / "other.safetensors", "--task", "digits", "--recorded", "--method", "matched")
    assert not (tmp_path / "other.safetensors").exists()
