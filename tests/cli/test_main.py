"""What every verb has in common: a version, and errors that are messages with exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

import quietnn


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "quietnn.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_version() -> None:
    assert run("--version").stdout == f"quietnn {quietnn.__version__}\n"


@pytest.mark.parametrize("verb", [("demo",), ("gaussianity", "digits")])
def test_an_output_folder_that_is_a_file_is_a_message_not_a_traceback(tmp_path: Path, verb: tuple[str, ...]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    result = run(*verb, "--out", str(taken))
    assert result.returncode == 2
    assert str(taken) in result.stderr
    assert "Traceback" not in result.stderr
    assert taken.read_text() == "mine"


def test_a_sweep_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('name = "x"\ntask = "cifar10/resnet20"\nwnr_db = [4]\nmethods = ["ml"]\n')
    out = tmp_path / "run"
    result = run("sweep", str(config), "--out", str(out), "--data-dir", str(tmp_path), "--engine", "inline")
    assert result.returncode == 2
    assert not out.exists()
