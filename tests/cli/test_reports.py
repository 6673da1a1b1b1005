"""`quietnn analyze`, `report` and `figures` as a user types them."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn import records
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


def test_the_page_is_written_into_the_run(run: Path) -> None:
    result = RUNNER.invoke(app, ["report", str(run)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in run.iterdir()) == ["records.jsonl", "report.html"]
    assert "<title>Handwritten digits under weight noise</title>" in (run / "report.html").read_text()


def test_theory_and_inference_share_a_page(run: Path, tmp_path: Path) -> None:
    records.append(tmp_path / "theory" / "records.jsonl", [{"experiment": "theory", "kind": "note"}])
    result = RUNNER.invoke(app, ["report", str(run), str(tmp_path / "theory"), "-o", str(tmp_path / "both.html")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "both.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "60"], "60 % is 0.6"),
        (["--live", "-o", "page.html"], "leave out --out"),
        (["-o", "."], "which is a folder"),
        (["--live", "--port", "99999"], "choose another --port"),
    ],
)
def test_bad_options_of_the_page_write_nothing(run: Path, arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["report", str(run), *arguments])
    assert message in str(result.exception)
    assert [path.name for path in run.iterdir()] == ["records.jsonl"]


def test_live_on_a_folder_that_is_not_there_ends_with_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quietnn.cli.main", "report", str(tmp_path / "nowhere"), "--live", "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"COLUMNS": "400"})
    assert ended.returncode == 2
    assert "there is no run folder" in ended.stderr


def test_live_serves_the_page_until_it_is_stopped(run: Path) -> None:
    command = [sys.executable, "-m", "quietnn.cli.main", "report", str(run), "--live", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "400"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        address = next(word for word in first.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"data-live" in answer.read()
        process.send_signal(signal.SIGINT)
        assert "To keep the page: quietnn report" in process.stdout.read()
        assert process.wait(timeout=60) == 0


def test_figures_for_a_paper_are_pdf_svg_and_png(run: Path) -> None:
    result = RUNNER.invoke(app, ["figures", str(run)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (run / "figures").iterdir()} == {"accuracy.pdf", "accuracy.svg", "accuracy.png"}
    assert (run / "figures" / "accuracy.pdf").read_bytes().startswith(b"%PDF-")


def test_an_unknown_format_writes_nothing(run: Path) -> None:
    result = RUNNER.invoke(app, ["figures", str(run), "--formats", "pdf,gif"])
    assert "figure format is 'gif'" in str(result.exception)
    assert [path.name for path in run.iterdir()] == ["records.jsonl"]


def test_neither_torch_nor_matplotlib_is_loaded_for_the_page(run: Path) -> None:
    script = (
        "import sys; sys.argv[1:] = ['report', sys.argv[1]]; from quietnn.cli.main import app;"
        "app(standalone_mode=False); assert not {'torch', 'matplotlib'} & sys.modules.keys()"
    )
    result = subprocess.run([sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
