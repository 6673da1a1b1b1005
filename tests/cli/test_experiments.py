"""`quietnn configs`, `sweep`, `demo`, `federate` and `theory` as a user types them."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.experiments import checks_table
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.experiments import config
from quietnn.experiments.config import shipped_configs
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.experiments.theory_checks import theory_records

RUN = CliRunner()


def test_all_are_listed_with_the_command_that_runs_them() -> None:
    shown = RUN.invoke(app, ["configs"]).stdout.splitlines()
    assert len(shown) == len(shipped_configs()) + 1
    assert any(line.split()[:2] == ["sweep", "resnet20"] and "CIFAR-10" in line for line in shown)
    assert any(line.split()[:2] == ["federate", "federated-digits"] for line in shown)


def test_those_that_are_named_are_copied_and_never_over_a_file(tmp_path: Path) -> None:
    arguments = ["configs", "digits", "federated-digits", "--out", str(tmp_path / "mine")]
    assert RUN.invoke(app, arguments).exit_code == 0
    copied = tmp_path / "mine" / "digits.toml"
    assert copied.read_text() == shipped_configs()["digits"].read_text()
    copied.write_text("changed")
    assert isinstance(RUN.invoke(app, arguments).exception, InvalidConfig)
    assert copied.read_text() == "changed"
    assert RUN.invoke(app, [*arguments, "--overwrite"]).exit_code == 0
    assert copied.read_text() != "changed"


def test_a_name_that_is_none_is_an_error(tmp_path: Path) -> None:
    ended = RUN.invoke(app, ["configs", "digit", "--out", str(tmp_path / "mine")])
    assert isinstance(ended.exception, MissingData)
    assert "did you mean 'digits'" in str(ended.exception)
    assert not (tmp_path / "mine").exists()


def test_a_ready_made_sweep_runs_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--set", "wnr_db=[2]", "--set", 'methods=["ml"]', "--set", "num_draws=1", "--set", "num_test_examples=20"]
    ended = RUN.invoke(app, ["sweep", "digits", "--engine", "inline", *small])
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "runs/digits/records.jsonl").is_file()


def test_the_demo_leaves_records_figures_and_a_page_and_prints_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer draws and WNRs than the real one, which takes most of a minute."""
    whole = config.load_config(NoisyInference, Path("digits"), preset="demo")
    assert {"ml", "mmse", "mmse_pb", "mmse_pb_layerwise", "calibrated", "self_trained", "posterior"} == set(
        whole.methods
    )
    small = replace(whole, wnr_db=(2.0, 12.0), num_draws=2, num_tuning_examples=50, num_test_examples=200)
    asked = []
    monkeypatch.setattr(config, "load_config", lambda kind, path, *, preset: asked.append((path, preset)) or small)
    sweep(small, tmp_path, engine="inline")
    swept = (tmp_path / "records.jsonl").read_bytes()
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert asked == [(Path("digits"), "demo")]
    assert (tmp_path / "records.jsonl").read_bytes() == swept, "what is there is not made again"
    assert len(records.read(tmp_path / "records.jsonl")) == 2 * 2 * len(small.methods) + 1
    for name in ("accuracy.png", "accuracy.svg", "surface.png", "layers.png", "summary.md", "report.html"):
        assert (tmp_path / name).stat().st_size > 0
    for label in ("MMSE", "Calibrated", "Self-trained, no labels", "Posterior", "dB"):
        assert label in result.output


FEDERATION = """
name = "mini"
task = "digits/mlp"
wnr_db = [0]
methods = ["ml", "planned"]
num_draws = 1
num_rounds = 2
num_epochs = 1
batch_size = 25
num_progress_examples = 100
"""


def test_a_federation_is_run_once_and_analysed_again(tmp_path: Path) -> None:
    (tmp_path / "mini.toml").write_text(FEDERATION)
    command = ["federate", str(tmp_path / "mini.toml"), "--out", str(tmp_path / "run")]
    first = RUN.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "3 records" in first.output
    assert "Without noise:" in first.output
    again = RUN.invoke(app, command)
    assert "3 records" in again.output
    analysed = RUN.invoke(app, ["analyze", str(tmp_path / "run")])
    assert analysed.exit_code == 0, analysed.output
    assert "Planned" in analysed.output
    assert (tmp_path / "run" / "rounds.png").exists()


def test_json_prints_the_checks_alone_and_the_files_are_written(tmp_path: Path) -> None:
    out = tmp_path / "theory"
    result = RUN.invoke(app, ["theory", "--out", str(out), "--samples", "200", "--json"])
    assert result.exit_code == 0
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    stored = [record for record in records.read(out / "records.jsonl") if record["kind"] == "check"]
    assert printed == stored
    assert {"closed_form", "monte_carlo", "standard_error", "z"} <= printed[0].keys()
    names = {file.name for file in out.iterdir()}
    assert names == {"records.jsonl", *(f"figure-{n}.{s}" for n in (2, 3, 5, 6) for s in ("png", "svg"))}


def test_table_fits_eighty_columns() -> None:
    checks = [record for record in theory_records(num_samples=1_000) if record["kind"] == "check"]
    checks[0] |= {"monte_carlo": 0.04096, "standard_error": 0.0002, "z_printed": 2828.2}
    console = Console(width=80, file=StringIO(), record=True)
    console.print(checks_table(checks))
    text = console.export_text()
    assert "…" not in text
    for heading in ("Theorem 1", "Theorem 2", "Lemma 1", "figure 3, P3", "Monte Carlo"):
        assert heading in text


def test_bad_arguments_write_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(QuietnnError, match="which is a file; it must be a directory"):
        RUN.invoke(app, ["theory", "--out", str(file)], catch_exceptions=False)
    with pytest.raises(QuietnnError, match="num_samples is 3"):
        RUN.invoke(app, ["theory", "--out", str(tmp_path / "new"), "--samples", "3"], catch_exceptions=False)
    assert file.read_text() == "mine"
    assert not (tmp_path / "new").exists()
