"""A progress bar that counts records and tells the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quietnn.records import Record


@contextmanager
def record_progress(title: str) -> Iterator[Callable[[Record, int, int], None]]:
    """A bar on the error stream, moved by `(record, done, total)`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[latest]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(title, total=None, latest="")

        def move(record: Record, done: int, total: int) -> None:
            accuracy = record["accuracy"]
            reached = f"score {record['score']:.4g}" if accuracy is None else f"{100 * accuracy:.1f} %"
            latest = f"{record['method']} at {record['wnr_db']:g} dB: {reached}"
            progress.update(bar, completed=done, total=total, latest=latest)

        yield move
