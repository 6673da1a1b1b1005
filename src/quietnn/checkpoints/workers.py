"""Threads that share a list of jobs, and the memory that they share: while one waits for the disk, another computes."""

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Condition, Lock, Thread
from typing import Any, TypeVar

import torch
from torch import Tensor

from quietnn.channels.randomness import BLOCK as NOISE_BLOCK
from quietnn.checkpoints.header import PAGE
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.moments import one_torch_thread

_MOST_THREADS = 24
_THREAD_LIMIT = 256

AT_ONCE = 1 << 22
"""Weights that may be in work at once, if no tensor has more; a channel takes up to some hundred bytes for each."""

_LARGE = 1 << 18
"""Weights of a tensor for which it is worth the time, about a millisecond, to give memory back."""

Job = TypeVar("Job")


@dataclass(frozen=True)
class Streaming:
    """How a file is streamed. None of it changes the result.

    Attributes:
        num_threads: threads that read, compute and write. None stands for one a core to read, and for three a core to
            write, so that some compute while others wait for the disk. It is 24 at most, as each has a buffer.
        chunk: weights that a thread holds at a time, rounded up to a multiple of 65,536.
        on_progress: told the number of bytes of each chunk that is done, from any thread.
    """

    num_threads: int | None = None
    chunk: int = 16 * NOISE_BLOCK
    on_progress: Callable[[int], None] = lambda num_bytes: None

    def __post_init__(self) -> None:
        """Refuse numbers below one."""
        for name, value in (("num_threads", self.num_threads), ("chunk", self.chunk)):
            if value is not None and value < 1:
                raise InvalidConfig(f"{name} is {value}; it must be at least 1")
        if self.num_threads is not None and self.num_threads > _THREAD_LIMIT:
            raise InvalidConfig(f"num_threads is {self.num_threads}; more than {_THREAD_LIMIT} only cost memory")

    @property
    def readers(self) -> int:
        """The number of threads that only read and compute."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.num_threads or min(cores, _MOST_THREADS)

    @property
    def writers(self) -> int:
        """The number of threads that write as well."""
        return self.num_threads or min(3 * self.readers, _MOST_THREADS)

    @property
    def chunk_values(self) -> int:
        """Values in a chunk: whole blocks of the noise, and so whole blocks of the statistics."""
        return -(-self.chunk // NOISE_BLOCK) * NOISE_BLOCK


def run(jobs: Iterable[Job], work: Callable[[Job, Tensor], None], num_threads: int, chunk_values: int) -> None:
    """Do every job, each thread with a buffer of its own (bytes, for a chunk of the widest dtype anywhere in a page).

    The first error stops all threads and is raised here.
    """
    queue = iter(jobs)
    lock = Lock()
    errors: list[BaseException] = []

    def next_job() -> Job | None:
        with lock:
            return None if errors else next(queue, None)

    def labour() -> None:
        try:
            buffer = whole_pages(chunk_values * 8 + PAGE)
            while (job := next_job()) is not None:
                work(job, buffer)
        except BaseException as error:
            errors.append(error)

    with one_torch_thread():
        helpers = [Thread(target=labour, daemon=True) for _ in range(num_threads - 1)]
        try:
            for helper in helpers:
                helper.start()
            labour()
            _join(helpers)
        except BaseException as error:  # an interrupt: nobody may still write when the caller cleans up
            errors.append(error)
            _join(helpers)
    if errors:
        raise _explained(errors[0], num_threads)


def _explained(error: BaseException, num_threads: int) -> BaseException:
    """The same error; one about memory or threads, which Python and torch tell in their own ways, with a remedy."""
    starved = isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("start new thread" in str(error) or "allocate memory" in str(error))
    )
    if not starved:
        return error
    told = QuietnnError(f"{num_threads} threads need more memory than there is ({error}); take fewer with --threads")
    told.__cause__ = error
    return told


def whole_pages(num_bytes: int) -> Tensor:
    """Memory that begins with a page, as direct writing wants it."""
    memory = torch.empty(num_bytes + PAGE, dtype=torch.uint8)
    return memory[-memory.data_ptr() % PAGE :]


def _join(threads: Iterable[Thread]) -> None:
    for thread in threads:
        if thread.ident is not None:
            thread.join()


class Room:
    """Lets threads in while their tensors have at most `AT_ONCE` weights together, or those of the `largest` one."""

    def __init__(self, largest: int) -> None:
        self._free = max(largest, AT_ONCE)
        self._left = Condition()

    @contextmanager
    def taken(self, num_weights: int) -> Iterator[None]:
        """Room for a tensor as soon as there is some; whoever holds it must wait for nobody else."""
        with self._left:
            self._left.wait_for(lambda: self._free >= num_weights)
            self._free -= num_weights
        try:
            yield
        finally:
            give_back(num_weights)
            with self._left:
                self._free += num_weights
                self._left.notify_all()


def give_back(num_weights: int) -> None:
    """Return what is free to the system, where its allocator can, after work on a tensor of so many weights.

    The allocator of Linux keeps blocks of up to 32 MB for the thread that freed them, and small ones that stay, such as
    statistics, may come to lie in them; the next large one does not fit then. Tensors of 16 MB, one after the other,
    took as much as all of them together in some runs.
    """
    trim = _trim()
    if trim is not None and num_weights >= _LARGE:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
