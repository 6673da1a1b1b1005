"""How Gaussian the embedded network's weights are, through the command."""

from pathlib import Path

from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app


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
