"""`quietnn train` and `quietnn evaluate` end to end, on the embedded digits and on wrong requests."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError
from quietnn.tasks.registry import load_task

RUN = CliRunner()


def call(*arguments: str) -> str:
    """The output of a command that succeeds; its error if it does not."""
    result = RUN.invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_train_then_evaluate(tmp_path: Path) -> None:
    weights = tmp_path / "weights" / "digits.safetensors"
    told = call("train", "digits", "--epochs", "2", "--threads", "1", "--data-dir", str(tmp_path))
    assert f"wrote {weights}" in told.replace("\n", "")
    answer = json.loads(call("evaluate", "digits", "--weights", str(weights), "--num-examples", "200", "--json"))
    assert answer["num_examples"] == 200
    assert answer["accuracy"] > 0.3
    assert "+-" in call("evaluate", "digits", "--weights", str(weights), "--num-examples", "20")


def test_training_logs_json_lines_and_keeps_its_checkpoints_where_told(tmp_path: Path) -> None:
    log, run_dir = tmp_path / "logs" / "run.jsonl", tmp_path / "elsewhere"
    options = ("--epochs", "2", "--threads", "1", "--log", str(log), "--run-dir", str(run_dir))
    call("train", "digits", *options, "--data-dir", str(tmp_path))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["step"] + 1 == line["num_steps"]] == [0, 1]
    assert all(line["loss"] > 0 and line["seconds"] >= 0 for line in lines)
    assert run_dir.is_dir()
    assert not (tmp_path / "runs").exists()


def test_a_pytorch_file_is_scored_like_the_same_weights_in_safetensors(tmp_path: Path) -> None:
    task = load_task("digits")
    file = tmp_path / "digits.pt"
    torch.save(task.load_model().state_dict(), file)
    answer = json.loads(call("evaluate", "digits", "--weights", str(file), "--json"))
    assert answer["accuracy"] == json.loads(call("evaluate", "digits", "--json"))["accuracy"]
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InvalidWeights, match="not a whole PyTorch file"):
        call("evaluate", "digits", "--weights", str(file))


def test_weights_are_not_replaced_unasked(tmp_path: Path) -> None:
    weights = tmp_path / "weights" / "digits.safetensors"
    weights.parent.mkdir()
    weights.write_text("precious")
    with pytest.raises(InvalidConfig, match="there already"):
        call("train", "digits", "--epochs", "1", "--data-dir", str(tmp_path))
    assert weights.read_text() == "precious"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("train", "cifar10/resnet81"), InvalidConfig, "did you mean 'cifar10/resnet18'"),
        (("train", "digits", "--epochs", "0"), InvalidConfig, "num_epochs is 0"),
        (("train", "digits", "--grow-from", "resnet18"), InvalidConfig, "digits cannot grow out of 'resnet18'"),
        (("train", "sst2/minilm", "--grow-from", "resnet18"), InvalidConfig, "leave --grow-from out"),
        (("train", "cifar10/resnet34", "--grow-from", "resnet81"), InvalidConfig, "use --grow-from resnet18"),
        (
            ("train", "cifar10/resnet20", "--grow-from", "resnet18"),
            InvalidConfig,
            "resnet20 cannot grow out of resnet18",
        ),
        (("train", "cifar10/resnet34", "--grow-from", "resnet18"), MissingData, "resnet18-cifar10"),
        (("train", "digits", "--batch-size", "5000"), InvalidConfig, "lower --batch-size"),
        (("train", "sst2/nothing"), MissingData, "a pretrained encoder called 'nothing'"),
        (("evaluate", "cifar10/resnet18"), MissingData, "resnet18-cifar10"),
        (("evaluate", "digits", "--num-examples", "100000"), InvalidConfig, "asked for 100000 examples"),
    ],
)
def test_wrong_requests_write_nothing(
    tmp_path: Path, arguments: tuple[str, ...], error: type[QuietnnError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(*arguments, "--data-dir", str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
