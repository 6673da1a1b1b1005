"""Memory that is free goes back to the system between one large tensor and the next."""

import ctypes
from functools import cache
from typing import Any

_LARGE = 1 << 18
"""Weights of a tensor for which it is worth the time, about a millisecond."""


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
