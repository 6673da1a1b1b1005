"""`quietnn federate` and what `quietnn analyze` makes of it."""

from pathlib import Path

from typer.testing import CliRunner

from quietnn.cli.main import app

CONFIG = """
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
    (tmp_path / "mini.toml").write_text(CONFIG)
    command = ["federate", str(tmp_path / "mini.toml"), "--out", str(tmp_path / "run")]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "3 records" in first.output
    assert "Without noise:" in first.output
    again = CliRunner().invoke(app, command)
    assert "3 records" in again.output
    analysed = CliRunner().invoke(app, ["analyze", str(tmp_path / "run")])
    assert analysed.exit_code == 0, analysed.output
    assert "Planned" in analysed.output
    assert (tmp_path / "run" / "rounds.png").exists()
