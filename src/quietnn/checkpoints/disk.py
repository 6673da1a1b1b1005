"""Bytes of tensors on the disk: pieces that are read into memory, and a new file that is filled in any order."""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quietnn.checkpoints.header import PAGE, Header
from quietnn.errors import InvalidWeights

TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""The dtypes that quietnn computes with; others are copied through."""


@dataclass(frozen=True)
class Piece:
    """A stretch of one tensor, whose dtype is uint8 if it is only copied.

    `start` is the place of its first value in the tensor, `begin` that of its first byte in the file's data.
    """

    name: str
    dtype: torch.dtype
    start: int
    begin: int
    num_bytes: int

    def within(self, buffer: Tensor, place: int = 0) -> Tensor:
        """Room for its bytes in a buffer, at the same place of a page as in a file when they are written to `place`.

        A tensor that begins at no multiple of its own values' size cannot, and lies at the start of the buffer.
        """
        begin = place % PAGE if place % self.dtype.itemsize == 0 else 0
        return buffer[begin : begin + self.num_bytes]


def pieces_of(header: Header, chunk: int, names: frozenset[str] | None = None) -> Iterator[Piece]:
    """The tensors of a file (or those named) cut into chunks of so many values, in the order of the data."""
    for name, entry in sorted(header.entries.items(), key=lambda item: item[1].begin):
        if names is not None and name not in names:
            continue
        dtype = TORCH_DTYPES.get(entry.dtype, torch.uint8)
        stride = chunk * dtype.itemsize
        for begin in range(entry.begin, entry.end, stride):
            num_bytes = min(stride, entry.end - begin)
            yield Piece(name, dtype, (begin - entry.begin) // dtype.itemsize, begin, num_bytes)


def read_into(stretch: Tensor, path: Path, offset: int) -> None:
    """Fill a flat tensor of bytes from a file; it is opened for that, as there may be more shards than may be open."""
    view = stretch.numpy().data
    try:
        with path.open("rb", buffering=0) as file:
            while view:
                num_read = os.preadv(file.fileno(), [view], offset)
                if num_read == 0:
                    raise InvalidWeights(f"{path} became shorter while it was read; run again once it is whole")
                view, offset = view[num_read:], offset + num_read
    except OSError as error:
        raise InvalidWeights(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error


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
