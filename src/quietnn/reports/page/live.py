"""The page of a run in progress: its folders are read again and again, and this machine alone is served.

There are three addresses, none of which names a file.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from typing import Any

from quietnn.errors import MissingData, QuietnnError
from quietnn.records import CONFIG, RECORDS
from quietnn.reports.analysis import analyse_runs
from quietnn.reports.page.document import compress, render_page
from quietnn.reports.page.payload import page_payload
from quietnn.reports.runs import Run, measured_cells, planned_cells, read_run
from quietnn.reports.titles import duration

NUM_RESAMPLES = 1_000
"""Bootstrap resamples while a run goes on: enough for an eye, cheap enough to repeat."""

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 64
"""At a time."""

_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)


@dataclass
class Watch:
    """What run folders held when they were last read, and what the page shows of them.

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


class LiveServer(ThreadingHTTPServer):
    """The page, its numbers, and how far the runs are; a page asks for the last again and again.

    Nothing of a request ever becomes a path: what can be read is what `Watch` read from its folders. A request must
    name this server in its `Host`, so that no foreign site can lead a browser here under a name of its own.
    Port 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, watch: Watch, *, port: int = 0) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._looking = threading.Lock()
        super().__init__((LOOPBACK, port), _Handler)
        self.port: int = self.server_address[1]
        self.address = f"http://{LOOPBACK}:{self.port}/"
        self.watch, self.version = watch, 0
        self.progress()

    @contextmanager
    def running(self) -> Iterator["LiveServer"]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join(timeout=5)

    def progress(self) -> dict[str, Any]:
        """Look again, and say how far the runs are and which version of the numbers there is now.

        A trouble with the records takes the place of the note.
        """
        with self._looking:
            try:
                self.version += self.watch.look()
                trouble = self.watch.trouble
            except (QuietnnError, OSError) as error:
                trouble = str(error)
            except Exception as error:  # a page that shows the trouble is better than one that stands still
                trouble = f"these records cannot be shown ({type(error).__name__}: {error})"
            return {**self.watch.progress(), **({"note": trouble} if trouble else {}), "version": self.version}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; one connection too many is closed at once."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back, however the connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away or fell silent."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page, its data and its progress, and refuses everything else."""

    server: LiveServer
    timeout = 30.0  # how long a connection may say or take nothing
    protocol_version = "HTTP/1.1"
    server_version = "quietnn"
    sys_version = ""

    def do_GET(self) -> None:
        live = self.server
        if self.headers.get("Host", "") not in {f"{name}:{live.port}" for name in (LOOPBACK, "localhost")}:
            self._refuse(HTTPStatus.FORBIDDEN, f"this page answers to {live.address} only")
        elif self.path == "/":
            self._send(render_page(live.watch.payload, live=True).encode(), "text/html; charset=utf-8")
        elif self.path == "/data":
            self._send(compress(live.watch.payload), "application/gzip")
        elif self.path == "/progress":
            self._send(compress(live.progress()), "application/gzip")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here but the page")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal belongs to the user."""

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(f"{why}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in (*_HEADERS, ("Content-Type", kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
