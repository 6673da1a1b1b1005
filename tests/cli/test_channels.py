"""What channels do to the embedded network's weights, and how Gaussian those are, through the commands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app

CHANNELS = ["awgn:wnr_db=10", "quantise:num_bits=3", "pcm:seconds=3600", "fading:wnr_db=10,block=32"]


def test_every_channel_is_compared_with_a_gaussian(tmp_path: Path) -> None:
    options = [part for channel in CHANNELS for part in ("--channel", channel)]
    result = CliRunner().invoke(app, ["channels", "digits", *options, "--out", str(tmp_path)])
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
    former, now = (CliRunner().invoke(app, [verb, *arguments]) for verb in ("media", "channels"))
    assert former.exit_code == 0
    assert former.stdout == now.stdout
    assert "quietnn media is called quietnn channels now" in former.stderr
    assert not now.stderr
    assert " media " not in CliRunner().invoke(app, ["--help"]).stdout


def test_every_layer_and_the_whole_model_are_judged(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["gaussianity", "digits", "--wnr-db", "4", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = records.read(tmp_path / "records.jsonl")
    assert [record["layer"] for record in found][:2] == ["", "conv1"]
    assert len(found) == 8
    assert sum(record["num_weights"] for record in found[1:]) == found[0]["num_weights"]
    assert abs(found[0]["wnr_db"] - 4.0) < 1e-6
    assert all(record["best_error"] <= record["linear_error"] for record in found)
    assert "whole model" in (tmp_path / "table.md").read_text()
