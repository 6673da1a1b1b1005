"""`quietnn train`, `evaluate`, `gaussianity` and `channels` on the embedded digits and on wrong requests."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError
from quietnn.tasks.registry import load_task

RUN = CliRunner()
CHANNELS = ["awgn:wnr_db=10", "quantise:num_bits=3", "pcm:seconds=3600", "fading:wnr_db=10,block=32"]


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


def test_every_channel_is_compared_with_a_gaussian(tmp_path: Path) -> None:
    options = [part for channel in CHANNELS for part in ("--channel", channel)]
    result = RUN.invoke(app, ["channels", "digits", *options, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    models = {record["channel"]: record for record in records.read(tmp_path / "records.jsonl") if not record["layer"]}
    assert list(models) == CHANNELS
    white, coarse, _, fading = models.values()
    assert abs(white["excess_kurtosis"]) < 0.3
    assert abs(white["squared_over_told"] - 1) < 0.05
    assert coarse["distance"] > 3 * white["distance"]
    assert "rate" not in white
    assert fading["rate"] == pytest.approx(1.25, abs=0.05)  # eight pilots for every 32 symbols
    assert fading["excess_kurtosis"] > 3  # a mixture of noises, ...
    assert abs(fading["excess_kurtosis_by_told"]) < 1.5  # ... of which each is nearly Gaussian
    assert "quantise:num_bits=3" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "errors.svg").exists()
    assert (tmp_path / "quantiles.png").exists()


def test_the_former_name_of_the_command_still_works_and_says_so() -> None:
    arguments = ["digits", "--channel", "quantise:num_bits=3"]
    former, now = (RUN.invoke(app, [verb, *arguments]) for verb in ("media", "channels"))
    assert former.exit_code == 0
    assert former.stdout == now.stdout
    assert "quietnn media is called quietnn channels now" in former.stderr
    assert not now.stderr
    assert " media " not in RUN.invoke(app, ["--help"]).stdout


def test_every_layer_and_the_whole_model_are_judged(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["gaussianity", "digits", "--wnr-db", "4", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = records.read(tmp_path / "records.jsonl")
    assert [record["layer"] for record in found][:2] == ["", "conv1"]
    assert len(found) == 8
    assert sum(record["num_weights"] for record in found[1:]) == found[0]["num_weights"]
    assert abs(found[0]["wnr_db"] - 4.0) < 1e-6
    assert all(record["best_error"] <= record["linear_error"] for record in found)
    assert "whole model" in (tmp_path / "table.md").read_text()
