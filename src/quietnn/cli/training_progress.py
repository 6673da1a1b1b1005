"""Training progress as a bar on a terminal, as one line per epoch in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quietnn.tasks.fit import Progress as TrainingProgress


@contextmanager
def training_progress(task: str) -> Iterator[Callable[[TrainingProgress], None]]:
    """Give a callback for `fit` that shows where the run stands and how much time is left."""
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
            if not console.is_terminal and (last or progress.step % 100 == 99):
                seconds = time.monotonic() - started[0]
                console.print(
                    f"epoch {progress.epoch + 1}/{progress.num_epochs} step {progress.step + 1}/"
                    f"{progress.num_steps} loss {progress.loss:.4f} lr {progress.learning_rate:.5f} {seconds:.0f} s",
                    highlight=False,
                )

        yield show
