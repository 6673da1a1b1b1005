"""`quietnn analyze` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn.cli.main import app

RUNNER = CliRunner()


def test_tables_on_the_terminal_and_files_in_the_run(run: Path) -> None:
    result = RUNNER.invoke(app, ["analyze", str(run)])
    assert result.exit_code == 0, result.output
    assert "+2.00" in result.output
    assert "70.0±0.0" in result.output
    assert {"report.html", "summary.md", "accuracy.png", "accuracy.svg"} <= {path.name for path in run.iterdir()}


def test_numbers_as_json_into_another_folder(run: Path, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["analyze", str(run), "--json", "--level", "0.5", "--out", str(tmp_path / "out")])
    found = json.loads(result.stdout)
    gain = found["tasks"][0]["curves"][1]["gain"]
    assert gain["level"] == 0.5
    assert gain["gain_db"] == pytest.approx(2.0)
    assert [Path(file).exists() for file in found["files"]] == [True] * len(found["files"])
    assert [path.name for path in run.iterdir()] == ["records.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--level", "60"], "60 % is 0.6"), (["--style", "poster"], "choose screen or paper")],
)
def test_bad_options_write_nothing(run: Path, arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["analyze", str(run), *arguments])
    assert message in str(result.exception)
    assert [path.name for path in run.iterdir()] == ["records.jsonl"]


def test_neither_torch_nor_pyplot_is_loaded(run: Path) -> None:
    script = (
        "import sys; sys.argv[1:] = ['analyze', sys.argv[1]]; from quietnn.cli.main import app;"
        "app(standalone_mode=False); assert not {'torch', 'matplotlib.pyplot'} & sys.modules.keys()"
    )
    result = subprocess.run([sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_narrow_terminal_cuts_no_number(run: Path) -> None:
    result = RUNNER.invoke(app, ["analyze", str(run)], env={"COLUMNS": "30"})
    assert result.output.count("90.0±0.0") == 3


def test_a_folder_without_records_exits_with_two_and_a_message(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quietnn.cli.main", "analyze", str(tmp_path / "[/nowhere]")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("error: no records in")
    assert "records.jsonl" in result.stderr
    assert "Traceback" not in result.stderr
