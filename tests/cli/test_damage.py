"""Damaged records and full disks: each command names file, line and field, and leaves what was there."""

import multiprocessing
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quietnn import records
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig

RUN = CliRunner()
COMMANDS = [["report"], ["analyze"], ["figures"]]
TRAINED = {"experiment": "noisy_training", "method": "ml", "wnr_db": 0.0, "draw": 0, "accuracy": 0.5, "task": "digits"}
BAD = [
    ({"trials": [[0.5, "x", 0.7]], "method": "mmse_pb", "accuracy": 0.5}, "trials is"),
    ({"task": ["digits"], "method": "ml", "accuracy": 0.5}, "task is"),
    ({"seed": "zero", "method": "ml", "accuracy": 0.5}, "seed is 'zero'"),
    ({"method": "ml", "accuracy": "0.5"}, "accuracy is '0.5'"),
    ({"num_tuning_examples": 0.5, "method": "ml", "accuracy": 0.5}, "num_tuning_examples is 0.5"),
    (TRAINED | {"tested_rounds": 3}, "tested_rounds is 3"),
    (TRAINED | {"round_accuracy": [0.1]}, "tested_rounds has 0 entries and round_accuracy 1"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(("bad", "field"), BAD)
def test_a_bad_record_is_named_by_file_line_and_field(
    run: Path, command: list[str], bad: records.Record, field: str
) -> None:
    path = run / "records.jsonl"
    line = len(records.read(path)) + 1
    records.append(path, [{"wnr_db": 3.0, "draw": 0} | bad])
    before = sorted(run.iterdir())
    result = RUN.invoke(app, [*command, str(run)])
    assert isinstance(result.exception, InvalidConfig)
    assert f"{path}, line {line} is not a record ({field}" in str(result.exception)
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_records_of_another_version_are_said_so(run: Path, command: list[str]) -> None:
    other = {"method": "ml", "wnr_db": 3.0, "draw": 0, "accuracy": 0.9, "version": "0.0.1", "task": "digits"}
    records.append(run / "records.jsonl", [other])
    result = RUN.invoke(app, [*command, str(run)])
    assert result.exit_code == 0
    assert "1 of 17 records were written by quietnn 0.0.1; this is quietnn" in result.stderr


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"num_draws": 99999999999999999999}', '{"wnr_db": ["high"]}', "\udcff"]
)
def test_a_damaged_configuration_is_named(run: Path, text: str) -> None:
    (run / "config.json").write_text(text, errors="surrogateescape")
    result = RUN.invoke(app, ["report", str(run)])
    assert isinstance(result.exception, InvalidConfig)
    assert str(run) in str(result.exception)


def on_a_full_disk(arguments: list[str], limit: int) -> None:
    """Run a command where no file may grow past a limit."""
    from quietnn.cli.main import main

    sys.argv = ["quietnn", *arguments]
    with Path("/dev/null").open("w") as nowhere, redirect_stderr(nowhere), redirect_stdout(nowhere):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        main()


@pytest.mark.parametrize("make", [lambda run: run / "out", lambda run: run], ids=["new", "there"])
@pytest.mark.parametrize("command", ["analyze", "figures"])
def test_a_full_disk_leaves_what_was_there(run: Path, command: str, make: Callable[[Path], Path]) -> None:
    out = make(run)
    if out == run:
        (run / "summary.md").write_text("old")
        (run / "accuracy.pdf").write_text("old")
    before = {path: path.read_bytes() for path in run.rglob("*")}
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=on_a_full_disk, args=([command, str(run), "--out", str(out)], 20_000))
    process.start()
    process.join()
    assert process.exitcode == 2
    assert {path: path.read_bytes() for path in run.rglob("*")} == before
