"""The progress of federations: a bar of runs, and the accuracy as it moves from round to round."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from quietnn.experiments.engines import Unit
from quietnn.records import Record


class FederationProgress:
    """Two callbacks: one for rounds, one for finished runs. In a log, one line for each run."""

    def __init__(self, progress: Progress, bar: TaskID, num_rounds: int, console: Console) -> None:
        self._progress, self._bar, self._num_rounds, self._console = progress, bar, num_rounds, console

    def on_round(self, unit: Unit, record: Record) -> None:
        """Show where the run stands."""
        accuracy = record.get("accuracy")
        latest = f"{unit.method} at {unit.level:g} dB, draw {unit.draw}: round {record['round']}/{self._num_rounds}"
        latest += f", loss {record['loss']:.3f}" + ("" if accuracy is None else f", {100 * accuracy:.1f} %")
        self._progress.update(self._bar, latest=latest)

    def on_record(self, record: Record, done: int, total: int) -> None:
        """Count a run, and say how it ended."""
        self._progress.advance(self._bar)
        ended = f"{record['method']} at {record['wnr_db']:g} dB, draw {record['draw']}: "
        ended += f"{100 * record['accuracy']:.1f} %" if record["status"] == "finished" else str(record["reason"])
        self._progress.update(self._bar, latest=ended)
        if not self._console.is_terminal:
            self._console.print(ended, f"in {record['seconds']:.0f} s", highlight=False, markup=False)


@contextmanager
def federation_progress(title: str, num_runs: int, num_rounds: int) -> Iterator[FederationProgress]:
    """A bar on the error stream; in a log, lines."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[latest]}"), console=console, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task(title, total=num_runs, latest="")
        yield FederationProgress(progress, bar, num_rounds, console)
