"""`quietnn configs`: what comes with the package, listed, copied and run by name."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, MissingData
from quietnn.experiments.config import shipped_configs

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
