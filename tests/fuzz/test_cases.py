"""The files that failed once, and a few new ones."""

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def run(tmp_path: Path, *arguments: str) -> str:
    command = [sys.executable, str(FUZZ), "--keep", str(tmp_path / "failures"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "failures").exists()
    return done.stdout


def test_the_files_that_failed_once_are_refused(tmp_path: Path) -> None:
    assert " 0 failures" in run(tmp_path, "--cases")


def test_some_files_of_every_kind(tmp_path: Path) -> None:
    told = run(tmp_path, "--seed", "5", "--num-cases", "300", "--seconds", "120")
    assert told.startswith("seed 5: ")
    assert " 0 failures" in told
