"""Have the disk begin its work early."""

import ctypes
from functools import cache
from typing import Any

_WRITE = 2


def start_writing(descriptor: int, offset: int, num_bytes: int) -> None:
    """Ask the system to begin writing a stretch of a file now, while the next one is computed; nobody waits.

    Without it the system gathers gigabytes first and `fsync` then waits for all of them. Where the call does not
    exist nothing happens.
    """
    if (sync_file_range := _sync_file_range()) is not None:
        sync_file_range(descriptor, offset, num_bytes, _WRITE)


@cache
def _sync_file_range() -> Any:
    """The system call of Linux that Python lacks."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function
