"""How many threads torch computes with, where that would show in the result."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing its work among threads; the setting is as before afterwards.

    Threads change last bits: sums are taken in another order, and logarithms or complex quotients are computed another
    way at the ends of each thread's part. What is to be the same on any machine, and from a file, is computed by one.

    >>> with one_torch_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
