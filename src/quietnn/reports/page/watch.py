"""Look at run folders again and again: what they hold now, how far they are, how long they still need."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from quietnn.errors import MissingData
from quietnn.records import CONFIG, RECORDS
from quietnn.reports.analysis import analyse_runs
from quietnn.reports.page.payload import page_payload
from quietnn.reports.runs import Run, measured_cells, planned_cells, read_run
from quietnn.reports.titles import duration

NUM_RESAMPLES = 1_000
"""Bootstrap resamples while a run goes on: enough for an eye, cheap enough to repeat."""


@dataclass
class Watch:
    """What run folders held when they were last looked at, and what the page shows of them.

    A folder that does not exist yet is waited for. Gains are read at an accuracy, by default the paper's; the command
    is what the user typed; the clock gives seconds that only go up.
    """

    folders: Sequence[Path]
    level: float | None = None
    command: str = ""
    clock: Callable[[], float] = time.monotonic
    runs: tuple[Run, ...] = ()
    payload: dict[str, Any] = field(default_factory=dict)
    _stamp: list[tuple[int, int]] | None = None
    _first: tuple[float, float] | None = None
    _latest: float = 0.0

    def look(self) -> bool:
        """Read what changed; whether anything did. Where records cannot be shown, what was read before stays."""
        stamp = _stamp(self.folders)
        if stamp == self._stamp:
            return False
        runs = tuple(_read(folder) for folder in self.folders)
        analysis = analyse_runs(runs, level=self.level, num_resamples=NUM_RESAMPLES)
        self.payload = page_payload(analysis, most_trials=60_000, unfinished=True) | {"command": self.command}
        self.runs, self._stamp, self._latest = runs, stamp, self.clock()
        if self._first is None:
            self._first = self._latest, _work(runs)
        return True

    @property
    def trouble(self) -> str:
        """The first damaged line that was left out, and how many more there are; empty if all lines are sound."""
        found = [damage for run in self.runs for damage in run.damaged]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"left out {found[0]}{more}" if found else ""

    def progress(self) -> dict[str, Any]:
        """How far the runs are, as the page shows it.

        `done` records are there of the `total` that was planned (None if no configuration says so). The time `left` is
        in words, at the pace seen since the first look; the `note` says how long ago the last record came.
        """
        done = sum(len(run.records) for run in self.runs)
        plans = [(planned_cells(run), run) for run in self.runs]
        found = {"done": done, "total": None, "left": "", "note": self._silence()}
        if not plans or any(plan is None for plan, _ in plans):
            return found
        missing = [cell for plan, run in plans for cell in (plan or set()) - measured_cells(run.records)]
        found["total"] = done + len(missing)
        if not missing:
            return found | {"note": ""}
        return found | {"left": self._time_left([method for _, _, method in missing])}

    def _time_left(self, missing: Sequence[str]) -> str:
        """Work left over the pace of work seen, where a method weighs what its records took in seconds."""
        if self._first is None:
            return ""
        began, before = self._first
        work, elapsed = _work(self.runs) - before, self._latest - began
        if work <= 0 or elapsed <= 0:
            return "time left is known after the next record"
        return f"about {duration(sum(map(_cost(self.runs), missing)) * elapsed / work)} left"

    def _silence(self) -> str:
        """How long nothing came, once that is longer than a minute."""
        quiet = self.clock() - self._latest
        return f"last record {duration(quiet)} ago" if quiet > 60 else ""


def _stamp(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """Size and time of change of every file that the page depends on."""
    found = []
    for path in (folder / name for folder in folders for name in (RECORDS, CONFIG)):
        try:
            state = path.stat()
            found.append((state.st_size, state.st_mtime_ns))
        except OSError:
            found.append((-1, 0))
    return found


def _read(folder: Path) -> Run:
    """The run, or an empty one while its first record is on the way."""
    try:
        return read_run(folder, only_sound=True)
    except MissingData:
        return Run(folder.resolve().name, folder, {}, ())


def _work(runs: Sequence[Run]) -> float:
    """The seconds that all records took."""
    return sum(float(record.get("seconds") or 0) for run in runs for record in run.records)


def _cost(runs: Sequence[Run]) -> Callable[[str], float]:
    """The mean seconds of a method's record; for one that was not seen yet, the mean of all."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in (record for run in runs for record in run.records):
        if (taken := record.get("seconds") or 0) > 0:
            seconds[str(record.get("method", ""))].append(float(taken))
    means = {method: fmean(found) for method, found in seconds.items()}
    usual = fmean(means.values()) if means else 1.0
    return lambda method: means.get(method, usual)
