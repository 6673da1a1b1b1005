"""The demonstration, from its command to its page."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app
from quietnn.experiments import config
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep


def test_the_demo_leaves_records_figures_and_a_page_and_prints_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer draws and WNRs than the real one, which takes most of a minute."""
    whole = config.load_config(NoisyInference, Path("digits"))
    small = NoisyInference(
        "digits", "digits", (2.0, 12.0), whole.methods, num_draws=2, num_tuning_examples=50, num_test_examples=200
    )
    monkeypatch.setattr(config, "load_config", lambda kind, path: small)
    sweep(small, tmp_path, engine="inline")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(records.read(tmp_path / "records.jsonl")) == 2 * 2 * len(small.methods) + 1
    for name in ("accuracy.png", "accuracy.svg", "surface.png", "layers.png", "summary.md", "report.html"):
        assert (tmp_path / name).stat().st_size > 0
    assert "MMSE" in result.output
    assert "dB" in result.output
