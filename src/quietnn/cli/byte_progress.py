"""How far the passes over a file are, on the error stream and only on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from quietnn.checkpoints.workers import Streaming
from quietnn.cli.stopping import stopping_cleanly


@contextmanager
def byte_progress(title: str, *, threads: int | None) -> Iterator[Streaming]:
    """How to stream, with a count of the bytes of both passes."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with stopping_cleanly(), progress:
        bar = progress.add_task(title, total=None)
        yield Streaming(num_threads=threads, on_progress=lambda moved: progress.advance(bar, moved))
