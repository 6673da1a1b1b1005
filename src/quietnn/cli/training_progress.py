"""Training progress as a bar on a terminal, as one line per epoch in a log."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quietnn.tasks.fit import Progress as TrainingProgress

LOG_STEPS = 25
"""A line of the log stands for so many steps."""


def append_to_log(log: Path, progress: TrainingProgress, seconds: float) -> None:
    """Add one JSON line: where the run stands and how long this sitting has taken."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(json.dumps({**asdict(progress), "seconds": round(seconds, 1)}) + "\n")


@contextmanager
def training_progress(task: str, *, log: Path | None = None) -> Iterator[Callable[[TrainingProgress], None]]:
    """Give a callback for `fit` that shows where the run stands and how much time is left.

    Args:
        task: its name.
        log: also append JSON lines to this file.
    """
    console = Console(stderr=True)
    started: list[float] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        row = bar.add_task(task, total=None)

        def show(progress: TrainingProgress) -> None:
            started.append(time.monotonic()) if not started else None
            done = progress.epoch * progress.num_steps + progress.step + 1
            bar.update(
                row,
                total=progress.num_epochs * progress.num_steps,
                completed=done,
                description=f"{task} epoch {progress.epoch + 1}/{progress.num_epochs} loss {progress.loss:.3f}",
            )
            last = progress.step + 1 == progress.num_steps
            if log is not None and (last or progress.step % LOG_STEPS == LOG_STEPS - 1):
                append_to_log(log, progress, time.monotonic() - started[0])
            if not console.is_terminal and (last or progress.step % 100 == 99):
                seconds = time.monotonic() - started[0]
                console.print(
                    f"epoch {progress.epoch + 1}/{progress.num_epochs} step {progress.step + 1}/"
                    f"{progress.num_steps} loss {progress.loss:.4f} lr {progress.learning_rate:.5f} {seconds:.0f} s",
                    highlight=False,
                )

        yield show
