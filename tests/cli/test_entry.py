"""An interrupt at any moment is one line, never a traceback."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quietnn.cli.entry import _Interrupts

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


LOADS = """
import signal

signal.raise_signal(signal.SIGINT)
loaded = sum(range(100_000))
"""


def test_an_interrupt_waits_until_a_module_has_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted_while_loading.py").write_text(LOADS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "interrupted_while_loading", raising=False)
    interrupts = _Interrupts()
    before = signal.signal(signal.SIGINT, interrupts)
    try:
        module = importlib.import_module("interrupted_while_loading")
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupts.came
    assert module.loaded == sum(range(100_000))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["inline", "processes"])
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
