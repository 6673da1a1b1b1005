"""Look at run folders again and again: what they hold now, how far they are, how long they still need."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from quietnn.errors import MissingData
from quietnn.reports.page.document import compress
from quietnn.reports.page.payload import analyse_inference, page_payload
from quietnn.reports.page.progress import measured_cells, planned_cells
from quietnn.reports.runs import CONFIG, RECORDS, Run, read_run

Stamp = tuple[tuple[int, int], ...]
"""Size and time of change of every file that the page depends on."""

NUM_RESAMPLES = 1_000
"""Bootstrap resamples while a run goes on: enough for an eye, cheap enough to repeat."""


@dataclass(frozen=True)
class Progress:
    """How far the runs are, as the page shows it.

    Attributes:
        done: records that are there.
        total: records that were planned; None if no configuration says so.
        left: the time left, in words; empty if nothing is known of it.
        note: what else is worth saying, such as how long ago the last record came.
    """

    done: int
    total: int | None
    left: str
    note: str


@dataclass
class Watch:
    """What the folders held when they were last looked at.

    Attributes:
        folders: the run folders; one that does not exist yet is waited for.
        level: the accuracy at which gains are read; by default the paper's.
        command: what the user typed, for the page.
        clock: seconds that only go up, replaceable by tests.
    """

    folders: Sequence[Path]
    level: float | None = None
    command: str = ""
    clock: Callable[[], float] = time.monotonic
    _runs: tuple[Run, ...] = ()
    _stamp: Stamp | None = None
    _payload: bytes = b""
    _first: tuple[float, dict[str, int]] | None = None
    _latest: float = field(default=0.0)

    def look(self) -> bool:
        """Read what changed; whether anything did.

        Raises:
            QuietnnError: for records that no page can show; what was read before stays.
        """
        stamp = _stamp(self.folders)
        if stamp == self._stamp:
            return False
        runs = tuple(_read(folder) for folder in self.folders)
        analysis = analyse_inference(runs, level=self.level, num_resamples=NUM_RESAMPLES)
        payload = page_payload(
            runs, analysis, level=self.level, num_resamples=NUM_RESAMPLES, most_trials=60_000, unfinished=True
        )
        self._payload = compress(payload | {"command": self.command})
        self._runs, self._stamp, self._latest = runs, stamp, self.clock()
        if self._first is None:
            self._first = self._latest, _counts(runs)
        return True

    @property
    def payload(self) -> bytes:
        """What the page shows, as compressed JSON."""
        return self._payload

    @property
    def trouble(self) -> str:
        """The first damaged line that was left out, and how many more there are; empty if all lines are sound."""
        found = [damage for run in self._runs for damage in run.damaged]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"left out {found[0]}{more}" if found else ""

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs as they were read last."""
        return self._runs

    def progress(self) -> Progress:
        """How far the runs are, and how long they still need at the pace seen since the first look."""
        done = sum(len(run.records) for run in self._runs)
        plans = [planned_cells(run) for run in self._runs]
        if not plans or any(plan is None for plan in plans):
            return Progress(done, None, "", self._silence())
        missing: dict[str, int] = {}
        total = 0
        for run, plan in zip(self._runs, plans, strict=True):
            open_cells = (plan or set()) - measured_cells(run.records)
            total += len(open_cells)
            for _, _, method in open_cells:
                missing[method] = missing.get(method, 0) + 1
        total += done
        if not missing:
            return Progress(done, total, "", "")
        return Progress(done, total, self._time_left(missing), self._silence())

    def _time_left(self, missing: dict[str, int]) -> str:
        """Work left over the pace of work seen, where a method weighs what its records took in seconds."""
        if self._first is None:
            return ""
        cost = _cost(self._runs)
        began, before = self._first
        counts = _counts(self._runs)
        work = sum(cost(method) * (counts[method] - before.get(method, 0)) for method in counts)
        elapsed = self._latest - began
        if work <= 0 or elapsed <= 0:
            return "time left is known after the next record"
        return f"about {duration(sum(cost(name) * count for name, count in missing.items()) * elapsed / work)} left"

    def _silence(self) -> str:
        """How long nothing came, once that is longer than a minute."""
        quiet = self.clock() - self._latest
        return f"last record {duration(quiet)} ago" if quiet > 60 else ""


def duration(seconds: float) -> str:
    """A time in the one unit that matters.

    >>> duration(42.0), duration(600.0), duration(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _stamp(folders: Sequence[Path]) -> Stamp:
    found = []
    for folder in folders:
        for name in (RECORDS, CONFIG):
            try:
                state = (folder / name).stat()
                found.append((state.st_size, state.st_mtime_ns))
            except OSError:
                found.append((-1, 0))
    return tuple(found)


def _read(folder: Path) -> Run:
    """The run, or an empty one while its first record is on the way."""
    try:
        return read_run(folder, only_sound=True)
    except MissingData:
        return Run(folder.resolve().name, folder, {}, ())


def _counts(runs: Sequence[Run]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in runs:
        for record in run.records:
            method = str(record.get("method", ""))
            counts[method] = counts.get(method, 0) + 1
    return counts


def _cost(runs: Sequence[Run]) -> Callable[[str], float]:
    """The mean seconds of a method's record; for one that was not seen yet, the mean of all."""
    seconds: dict[str, list[float]] = {}
    for run in runs:
        for record in run.records:
            taken = record.get("seconds")
            if isinstance(taken, int | float) and taken > 0:
                seconds.setdefault(str(record.get("method", "")), []).append(float(taken))
    means = {method: fmean(found) for method, found in seconds.items()}
    usual = fmean(means.values()) if means else 1.0
    return lambda method: means.get(method, usual)
