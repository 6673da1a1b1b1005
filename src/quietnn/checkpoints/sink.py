"""A new file of known size, filled from several threads in any order, past the system's cache where the disk allows."""

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

PAGE = 4096
"""What the disk takes directly begins and ends at multiples of this, in the file and in memory."""


class Sink:
    """A file to write to, with its room reserved from the start: a full disk is seen before the first weight.

    Whole pages go from our memory to the disk without a copy in the system's cache, which takes less of the
    processor, begins at once and leaves little to fsync. What does not fill a page, or lies askew in memory, or is
    on a disk that knows no such writing, goes through the cache.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self._cached, self._direct = os.open(path, os.O_RDWR | os.O_CREAT, 0o666), -1
        try:
            _reserve(self._cached, num_bytes)
            with suppress(OSError, AttributeError):  # not every disk can, nor every system
                self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
        except BaseException:
            self.close()
            raise

    def write(self, stretch: Tensor, offset: int) -> None:
        """Write a flat tensor of bytes to a place in the file."""
        view, end = stretch.numpy().data, offset + stretch.numel()
        first, last = -(-offset // PAGE) * PAGE, end // PAGE * PAGE
        if self._direct < 0 or first >= last or (stretch.data_ptr() - offset) % PAGE:
            return self.write_bytes(view, offset)
        self.write_bytes(view[: first - offset], offset)
        done = _write_pages(self._direct, view[first - offset : last - offset], first)
        self.write_bytes(view[first - offset + done :], first + done)

    def write_bytes(self, view: memoryview | bytes, offset: int) -> None:
        """Write through the system's cache; it may take the bytes in several goes."""
        view = memoryview(view)
        while view:
            written = os.pwrite(self._cached, view, offset)
            view, offset = view[written:], offset + written

    def finish(self) -> None:
        """Wait until everything is on the disk, and close."""
        try:
            os.fsync(self._cached)
        finally:
            self.close()

    def close(self) -> None:
        """Close without waiting; a second time does nothing."""
        for descriptor in (self._direct, self._cached):
            if descriptor >= 0:
                os.close(descriptor)
        self._direct = self._cached = -1


def _write_pages(descriptor: int, view: memoryview, offset: int) -> int:
    """Write whole pages directly; how many bytes the disk took this way."""
    done = 0
    while done < len(view):
        try:
            written = os.pwrite(descriptor, view[done:], offset + done)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # a disk with larger pages
        done += written // PAGE * PAGE
        if written % PAGE:
            break
    return done


def _reserve(descriptor: int, num_bytes: int) -> None:
    """Set a file's size, and its room on the disk where the system can; OSError if there is too little."""
    fallocate = _fallocate()
    if fallocate is not None and fallocate(descriptor, 0, 0, num_bytes) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
            raise OSError(number, os.strerror(number))
    os.ftruncate(descriptor, num_bytes)


@cache
def _fallocate() -> Any:
    """The system call of Linux; Python's `posix_fallocate` writes zeros where a disk cannot reserve."""
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
