"""How far a command is, in a log: lines at the steps that matter, and a stop that cleans up."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quietnn.cli.progress import byte_progress, federation_progress, pass_progress, record_progress, training_progress
from quietnn.experiments.engines import Unit
from quietnn.tasks.fit import Progress


def test_training_writes_a_line_every_hundred_steps_and_logs_every_twenty_five(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "new" / "log.jsonl"
    with training_progress("digits", log=log) as show:
        for step in range(130):
            show(Progress(epoch=0, num_epochs=2, step=step, num_steps=130, loss=1.5, learning_rate=0.1))
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [24, 49, 74, 99, 124, 129]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" loss ")[0] for line in lines if line] == ["epoch 1/2 step 100/130", "epoch 1/2 step 130/130"]


def test_a_federation_says_how_each_run_ended(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"method": "ml", "wnr_db": -4.0, "draw": 0, "seconds": 2.0, "status": "finished", "accuracy": 0.5}
    with federation_progress("fl", 2, 20) as (on_record, on_round):
        on_round(Unit(-4.0, 0, ("ml",)), {"round": 1, "loss": 2.0})
        on_record(record, 1, 2)
        on_record(record | {"status": "diverged", "reason": "[nan]"}, 2, 2)
    told = capsys.readouterr().err
    assert "ml at -4 dB, draw 0: 50.0 % in 2 s" in told
    assert "ml at -4 dB, draw 0: [nan] in 2 s" in told


def test_a_record_without_accuracy_shows_its_score(capsys: pytest.CaptureFixture[str]) -> None:
    with record_progress("sweep") as move:
        move({"method": "ml", "wnr_db": 0.0, "accuracy": None, "score": 12.3456}, 1, 1)
    assert "score 12.35" in capsys.readouterr().err


@pytest.mark.parametrize(("num_passes", "shown"), [(1.0, "1/1"), (0.0, "0/0"), (25.000000000000003, "25/25")])
def test_a_repair_ends_with_a_full_bar(num_passes: float, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever was expected, and though it told of no pass while it ran."""
    with pass_progress("repair", 20.0) as ended:
        ended(num_passes)
    assert f" {shown} passes" in capsys.readouterr().err


def test_a_terminated_stream_ends_as_an_exit_and_the_signal_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, byte_progress("write", threads=1):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_falls_into_a_callback_comes_again() -> None:
    """Python can only print what a callback raises; the command would go on."""
    program = """
import os, signal, time, weakref
from quietnn.cli.progress import byte_progress
signal.signal(signal.SIGTERM, signal.SIG_DFL)    # whatever was handed on
class Thing: pass
def callback(_):
    os.kill(os.getpid(), signal.SIGTERM)
    sum(range(1000))
with byte_progress("test", threads=1):
    thing = Thing()
    reference = weakref.ref(thing, callback)
    del thing
    time.sleep(30)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
