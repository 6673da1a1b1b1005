"""How far a command is: a bar on the error stream, or lines where that is a log."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from quietnn.cli.entry import signal_again
from quietnn.records import Record

if TYPE_CHECKING:
    from quietnn.checkpoints.workers import Streaming
    from quietnn.experiments.engines import Unit
    from quietnn.tasks.fit import Progress as TrainingProgress

_TITLE = TextColumn("{task.description}")
_LATEST = TextColumn("{task.fields[latest]}")
_SIGNALLED = 128
"""What shells expect of a command that a signal ended: this and the signal's number."""
_LOG_STEPS, _PRINT_STEPS = 25, 100
"""A line of the log stands for so many training steps, and so does one on the error stream."""


@contextmanager
def _bar(
    title: str, *columns: ProgressColumn, total: float | None = None, in_log: bool = True, **how: Any
) -> Iterator[Any]:
    """A bar on the error stream, which may be left out of a log: yields what updates it, and its console."""
    console = Console(stderr=True)
    with Progress(_TITLE, *columns, console=console, disable=not (in_log or console.is_terminal), **how) as progress:
        yield partial(progress.update, progress.add_task(title, total=total, latest="")), console


@contextmanager
def record_progress(title: str) -> Iterator[Callable[[Record, int, int], None]]:
    """A bar that counts records and tells the time left, moved by `(record, done, total)`."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), _LATEST)
    with _bar(title, *columns) as (update, _):

        def move(record: Record, done: int, total: int) -> None:
            accuracy = record["accuracy"]
            reached = f"score {record['score']:.4g}" if accuracy is None else f"{100 * accuracy:.1f} %"
            latest = f"{record['method']} at {record['wnr_db']:g} dB: {reached}"
            update(completed=done, total=total, latest=latest)

        yield move


@contextmanager
def pass_progress(title: str, num_expected: float) -> Iterator[Callable[[float], None]]:
    """A bar that counts the passes of a repair; it is as long as the method usually takes, or longer.

    Yields what fills it at the end, given the passes that were taken: not every method tells of them one by one.
    """
    from quietnn.repairs.fitting.scratch import on_pass

    done = 0.0
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("passes"), TimeElapsedColumn(), TimeRemainingColumn())
    with _bar(title, *columns, total=num_expected or None) as (update, _):

        def move(num_passes: float) -> None:
            nonlocal done
            done = round(done + num_passes, 2)
            update(completed=done, total=max(num_expected, done))

        with on_pass(move):
            yield lambda num_passes: update(completed=round(num_passes, 2), total=round(num_passes, 2))


@contextmanager
def federation_progress(
    title: str, num_runs: int, num_rounds: int
) -> Iterator[tuple[Callable[[Record, int, int], None], Callable[["Unit", Record], None]]]:
    """A bar of runs with the accuracy of each round, moved by a callback for records and one for rounds."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _LATEST)
    with _bar(title, *columns, total=num_runs, in_log=False) as (update, console):

        def on_round(unit: "Unit", record: Record) -> None:
            accuracy = record.get("accuracy")
            latest = f"{unit.method} at {unit.level:g} dB, draw {unit.draw}: round {record['round']}/{num_rounds}"
            latest += f", loss {record['loss']:.3f}" + ("" if accuracy is None else f", {100 * accuracy:.1f} %")
            update(latest=latest)

        def on_record(record: Record, done: int, total: int) -> None:
            ended = f"{record['method']} at {record['wnr_db']:g} dB, draw {record['draw']}: "
            ended += f"{100 * record['accuracy']:.1f} %" if record["status"] == "finished" else str(record["reason"])
            update(advance=1, latest=ended)
            if not console.is_terminal:
                console.print(ended, f"in {record['seconds']:.0f} s", highlight=False, markup=False)

        yield on_record, on_round


@contextmanager
def training_progress(task: str, *, log: Path | None = None) -> Iterator[Callable[["TrainingProgress"], None]]:
    """A bar of steps with the time left, moved by a callback for `fit`; a log also gets JSON lines."""
    began: list[float] = []
    percentage, left = TextColumn("{task.percentage:>3.0f}%"), TextColumn("left")
    columns = (BarColumn(), percentage, TimeElapsedColumn(), left, TimeRemainingColumn())
    with _bar(task, *columns, in_log=False) as (update, console):

        def show(now: "TrainingProgress") -> None:
            if not began:
                began.append(time.monotonic())
            seconds = time.monotonic() - began[0]
            epoch, step = f"epoch {now.epoch + 1}/{now.num_epochs}", now.step + 1
            update(
                total=now.num_epochs * now.num_steps,
                completed=now.epoch * now.num_steps + step,
                description=f"{task} {epoch} loss {now.loss:.3f}",
            )
            last = step == now.num_steps
            if log is not None and (last or step % _LOG_STEPS == 0):
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a") as file:
                    file.write(json.dumps({**asdict(now), "seconds": round(seconds, 1)}) + "\n")
            if not console.is_terminal and (last or step % _PRINT_STEPS == 0):
                line = f"{epoch} step {step}/{now.num_steps} loss {now.loss:.4f} lr {now.learning_rate:.5f}"
                console.print(f"{line} {seconds:.0f} s", highlight=False)

        yield show


@contextmanager
def byte_progress(title: str, *, threads: int | None) -> Iterator["Streaming"]:
    """How to stream a checkpoint, with a count of the bytes of both passes; a stop leaves nothing half-written."""
    from quietnn.checkpoints.workers import Streaming

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with _stopping_cleanly(), _bar(title, *columns, in_log=False, transient=True) as (update, _):
        yield Streaming(num_threads=threads, on_progress=lambda moved: update(advance=moved))


@contextmanager
def _stopping_cleanly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exit, so that what was begun is removed; those that are ignored stay ignored."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    usual = sys.unraisablehook

    def unraisable(ignored: Any) -> None:
        """An exit that fell into a callback, where Python can only print it, comes again a moment later."""
        if issubclass(ignored.exc_type, SystemExit):
            signal_again(ignored.exc_value.code - _SIGNALLED)
        else:
            usual(ignored)

    for number in ours:
        signal.signal(number, _stop)
    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = usual
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _: object) -> NoReturn:
    sys.exit(_SIGNALLED + number)
