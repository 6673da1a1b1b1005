"""Where units of work run: in this process, in worker processes, or on Ray. The records are the same."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.experiments.unit import Unit, Worker
from quietnn.records import Record

ENGINES = ("inline", "processes", "ray")
MAX_ATTEMPTS = 3


MakeWorker = Callable[[], Worker]


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

    A unit whose worker was killed is run again, so a record may come twice; the caller keeps the first.

    Args:
        engine: one of `ENGINES`.
        make_worker: called once in each worker; it must be picklable unless the engine is inline.
        units: independent pieces of work.
        num_workers: worker processes or Ray actors.
        num_threads: torch threads in each; one gives the same records on every engine.
        address: of an existing Ray cluster; left out, a local one is started.
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
            for pipe in crew.ready():
                unit, attempt = crew.busy[pipe]
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
                    crew.assign(pipe, *waiting.popleft())
                else:
                    crew.dismiss(pipe)
    finally:
        crew.dismiss_all()


class _Crew:
    """Worker processes, each on its own pipe with the unit it is at."""

    def __init__(self, make_worker: MakeWorker, num_threads: int) -> None:
        self.busy: dict[Connection, tuple[Any, int]] = {}
        self._processes: dict[Connection, BaseProcess] = {}
        self._context = multiprocessing.get_context("spawn")
        self._make_worker = make_worker
        self._num_threads = num_threads

    def hire(self, unit: Any, attempt: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._make_worker, self._num_threads), daemon=True)
        with _interrupts_blocked():
            process.start()
        theirs.close()
        self._processes[ours] = process
        self.assign(ours, unit, attempt)

    def assign(self, pipe: Connection, unit: Any, attempt: int) -> None:
        self.busy[pipe] = (unit, attempt)
        try:
            pipe.send(unit)
        except BrokenPipeError:
            return  # the worker is dead; reading from the pipe will tell

    def ready(self) -> list[Connection]:
        return [pipe for pipe in wait(list(self.busy)) if isinstance(pipe, Connection)]

    def dismiss(self, pipe: Connection) -> None:
        self.busy.pop(pipe, None)
        pipe.close()
        process = self._processes.pop(pipe)
        process.terminate()
        process.join()

    def dismiss_all(self) -> None:
        for pipe in list(self._processes):
            self.dismiss(pipe)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C goes to every process of a terminal; a worker that is started in here leaves it to this process."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
    try:
        import ray
    except ImportError as error:
        raise MissingData("the ray engine needs Ray; install it with: pip install 'quietnn[ray]'") from error
    from quietnn.experiments.ray_engine import run_on_ray

    return run_on_ray(ray, make_worker, units, num_workers=num_workers, num_threads=num_threads, address=address)
