"""Room for tensors in memory: how many weights may be in work at once, whatever the number of threads."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Condition
from typing import Any

AT_ONCE = 1 << 22
"""Weights that may be in work at once, if no tensor has more; a medium takes up to some hundred bytes for each."""

_LARGE = 1 << 18
"""Weights of a tensor that is worth it to return its memory, which takes a millisecond."""


class Room:
    """Lets threads in while the tensors they work on have so many weights together, the others wait.

    Args:
        largest: weights of the largest tensor, which is then in work alone if it has more than `AT_ONCE`.
    """

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
            if num_weights >= _LARGE:
                give_back()
            with self._left:
                self._free += num_weights
                self._left.notify_all()


def give_back() -> None:
    """Return memory that is free to the system, where its allocator can.

    That of Linux keeps what each thread freed for that thread, in pieces that the next tensor may not fit into: 64
    tensors sent one by one, of 16 MB each, took as much as all of them together.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
