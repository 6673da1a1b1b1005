"""The pieces that every experiment is cut into, and where they run: in this process, in worker processes, or on Ray.

The records are the same everywhere, in whatever order and place the pieces run.
"""

import multiprocessing
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.records import Record

ENGINES = ("inline", "processes", "ray")
MAX_ATTEMPTS = 3

Key = tuple[float, int, str]
"""What tells a record from all others of a run: level, draw, method."""


@dataclass(frozen=True)
class Unit:
    """One noisy network, or one run of a federation, and the methods to try on it.

    The level is the WNR, or what else the channel is set by. A federation has one method, or the text of a candidate
    for fixed temperatures.

    >>> Unit(4.0, 0, ("ml", "mmse")).without({(4.0, 0, "ml")})
    Unit(level=4.0, draw=0, methods=('mmse',))
    """

    level: float
    draw: int
    methods: tuple[str, ...]

    def keys(self) -> list[Key]:
        """The keys of the unit's records."""
        return [(self.level, self.draw, method) for method in self.methods]

    def without(self, done: set[Any]) -> "Unit":
        """The part of the unit that is not done yet."""
        return Unit(self.level, self.draw, tuple(key[2] for key in self.keys() if key not in done))

    @property
    def method(self) -> str:
        """The one method of a federation's run."""
        return self.methods[0]


def key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a unit's record."""
    return record.get("level", record.get("wnr_db")), record.get("draw"), record.get("method")


class Worker(Protocol):
    """Loads what it needs when it is made, then runs units."""

    def run(self, unit: Unit) -> Iterator[Record]:
        """The records of a unit."""


MakeWorker = Callable[[], Worker]
OnRound = Callable[[Unit, Record], None]
"""Told about each round of a federation: which run, and the record of the round."""


def ignore(*told: object) -> None:
    """The callback of those who do not want to know."""


def run_units(
    engine: str,
    make_worker: MakeWorker,
    units: Sequence[Unit],
    *,
    num_workers: int = 2,
    num_threads: int = 1,
    address: str | None = None,
) -> Iterator[Record]:
    """Run all units and yield their records as they come.

    A unit whose worker was killed is run again, so a record may come twice; the caller keeps the first. `make_worker`
    is called once in each worker, and must be picklable unless the engine is inline. One thread in each gives the same
    records on every engine. Without the address of a Ray cluster, a local one is started.
    """
    if num_workers < 1 or num_threads < 1:
        raise InvalidConfig(f"{num_workers} workers with {num_threads} threads cannot work; give at least one of each")
    if engine == "inline":
        return _run_inline(make_worker, units, num_threads)
    if engine == "processes":
        return _run_in_processes(make_worker, units, num_workers, num_threads)
    if engine == "ray":
        return _run_on_ray(make_worker, units, num_workers, num_threads, address)
    raise InvalidConfig(f"there is no engine {engine!r}; choose one of {', '.join(ENGINES)}")


def _run_inline(make_worker: MakeWorker, units: Sequence[Unit], num_threads: int) -> Iterator[Record]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        worker = make_worker()
        for unit in units:
            yield from worker.run(unit)
    finally:
        torch.set_num_threads(before)


def _run_in_processes(
    make_worker: MakeWorker, units: Sequence[Unit], num_workers: int, num_threads: int
) -> Iterator[Record]:
    waiting = deque((unit, 1) for unit in units)
    crew = _Crew(make_worker, num_threads)
    try:
        for _ in range(min(num_workers, len(units))):
            crew.hire(*waiting.popleft())
        while crew.busy:
            ready: list[Any] = wait(list(crew.busy))
            for pipe in ready:
                process, unit, attempt = crew.busy[pipe]
                try:
                    kind, content = pipe.recv()
                except (EOFError, ConnectionResetError):
                    crew.dismiss(pipe)
                    if attempt == MAX_ATTEMPTS:
                        raise QuietnnError(
                            f"a worker died {MAX_ATTEMPTS} times at {unit}; it may lack memory: use fewer workers"
                        ) from None
                    crew.hire(unit, attempt + 1)
                    continue
                if kind == "record":
                    yield content
                elif kind == "error":
                    raise content
                elif waiting:
                    crew.assign(pipe, process, *waiting.popleft())
                else:
                    crew.dismiss(pipe)
    finally:
        for pipe in list(crew.busy):
            crew.dismiss(pipe)


class _Crew:
    """Worker processes, each on its own pipe, with the unit it is at and the number of the attempt."""

    def __init__(self, make_worker: MakeWorker, num_threads: int) -> None:
        self.busy: dict[Any, tuple[BaseProcess, Unit, int]] = {}
        self._how = make_worker, num_threads

    def hire(self, unit: Unit, attempt: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, *self._how), daemon=True)
        with _interrupts_blocked():
            process.start()
        theirs.close()
        self.assign(ours, process, unit, attempt)

    def assign(self, pipe: Connection, process: BaseProcess, unit: Unit, attempt: int) -> None:
        self.busy[pipe] = process, unit, attempt
        with suppress(BrokenPipeError):  # the worker is dead; reading from the pipe will tell
            pipe.send(unit)

    def dismiss(self, pipe: Connection) -> None:
        process, _, _ = self.busy.pop(pipe)
        pipe.close()
        process.terminate()
        process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C goes to every process of a terminal; a worker that is started in here leaves it to this process.

    The worker inherits the mask. Here another thread may take the signal, and Python would raise in the middle of what
    the worker is told: one that comes meanwhile is raised afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would let interrupts through again
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if callable(handler):
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _serve(pipe: Connection, make_worker: MakeWorker, num_threads: int) -> None:
    """The life of a worker process: it ends when the pipe does."""
    import torch

    torch.set_num_threads(num_threads)
    try:
        worker = make_worker()
        while True:
            for record in worker.run(pipe.recv()):
                pipe.send(("record", record))
            pipe.send(("done", None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except QuietnnError as error:
        pipe.send(("error", error))


def _run_on_ray(
    make_worker: MakeWorker, units: Sequence[Unit], num_workers: int, num_threads: int, address: str | None
) -> Iterator[Record]:
    """Units as Ray tasks, `num_workers` at a time, on this machine or on a cluster; a killed one is run again."""
    try:
        import ray
    except ImportError as error:
        raise MissingData("the ray engine needs Ray; install it with: pip install 'quietnn[ray]'") from error
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "error"}
        if address is None:
            options |= {"num_cpus": num_workers * num_threads, "include_dashboard": False}
        ray.init(**options)
    try:
        remote = ray.remote(num_cpus=num_threads, max_retries=3)(_run_unit)
        recipe = ray.put(pickle.dumps(make_worker))
        waiting = list(reversed(units))
        running: list[Any] = []
        while waiting or running:
            while waiting and len(running) < num_workers:
                running.append(remote.remote(recipe, num_threads, waiting.pop()))
            finished, running = ray.wait(running, num_returns=1)
            try:
                yield from ray.get(finished[0])
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, QuietnnError) else error) from None
    finally:
        if ours:
            ray.shutdown()


def _run_unit(recipe: bytes, num_threads: int, unit: Unit) -> list[Record]:
    return list(_worker(recipe, num_threads).run(unit))


@lru_cache(maxsize=1)
def _worker(recipe: bytes, num_threads: int) -> Worker:
    """One worker for each Ray process, so that model and data are loaded once in it."""
    import torch

    torch.set_num_threads(num_threads)
    worker: Worker = pickle.loads(recipe)()
    return worker
