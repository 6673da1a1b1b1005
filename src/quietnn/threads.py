"""How many threads torch computes with, where that would show in the result."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

_LOCK = Lock()
_lent: list[int] = []
"""For each use that is going on, the setting that the first of them found."""


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing its work among threads; the setting is as before once the last of several uses ends.

    Threads change last bits: sums are taken in another order, and logarithms or complex quotients are computed another
    way at the ends of each thread's part. What is to be the same on any machine, and from a file, is computed by one.

    >>> with one_torch_thread():
    ...     torch.get_num_threads()
    1
    """
    with _LOCK:
        _lent.append(_lent[0] if _lent else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            before = _lent.pop()
            torch.set_num_threads(1 if _lent else before)
