"""An interrupt at any moment is one line, never a traceback."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

START = "from quietnn.cli.entry import main; print('up', flush=True); main()"
CONFIG = """
name = "mini"
task = "digits"
wnr_db = [4, 8]
num_draws = 400
methods = ["ml", "mmse_pb"]
num_tuning_examples = 20
num_test_examples = 50
"""


def interrupted(arguments: list[str], delay: float) -> tuple[int, str]:
    """The exit code and the error stream of a command that gets Ctrl-C, as its whole group does from a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.parametrize("engine", ["inline", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_interrupt_at_a_random_moment_is_one_line(tmp_path: Path, engine: str) -> None:
    (tmp_path / "mini.toml").write_text(CONFIG)
    command = ["sweep", str(tmp_path / "mini.toml"), "--out", str(tmp_path / "run"), "--engine", engine]
    moments = random.Random(1)
    for _ in range(6):
        code, errors = interrupted(command, moments.uniform(0.0, 4.0))
        assert "Traceback" not in errors, errors
        assert "KeyboardInterrupt" not in errors, errors
        if code in (0, -signal.SIGINT):
            continue  # it was done before, or on its way out
        assert code == 130, errors
        assert errors.count("interrupted") + errors.count("Aborted") == 1, errors
