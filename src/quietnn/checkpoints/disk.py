"""Bytes of tensors on the disk: pieces that are read into memory, and a new file that is filled in any order."""

import ctypes
import errno
import os
from collections.abc import Iterator
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


def uncomputable(name: str, kind: object) -> InvalidWeights:
    """The error for a noisy tensor of another kind."""
    return InvalidWeights(
        f"{name} is {kind}; quietnn computes with dense 16, 32 and 64 bit floats. Convert the model (for example to "
        f"bfloat16) before the noise, or copy that tensor as it is with --exclude '{name}'"
    )


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


def make_file(path: Path, header: bytes, data_size: int) -> None:
    """Begin a file, with room for all its data where the system can: a full disk is seen before the first weight."""
    with path.open("ab") as file:
        fallocate, size = _fallocate(), len(header) + data_size
        if fallocate is not None and fallocate(file.fileno(), 0, 0, size) != 0:
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
                raise OSError(number, os.strerror(number))
        os.ftruncate(file.fileno(), size)
    with path.open("r+b") as file:
        file.write(header)


def write_from(stretch: Tensor, path: Path, offset: int) -> None:
    """Write a flat tensor of bytes to a place in a file; any thread may, in any order.

    Whole pages go from our memory to the disk without a copy in the system's cache, which takes less of the processor,
    begins at once and leaves little to fsync. What does not fill a page, or lies askew in memory, or is on a disk that
    knows no such writing, goes through the cache.
    """
    view, done = stretch.numpy().data, 0
    first, last = -(-offset // PAGE) * PAGE, (offset + len(view)) // PAGE * PAGE
    if first < last and (stretch.data_ptr() - offset) % PAGE == 0:
        done = _write_pages(path, view[first - offset : last - offset], first)
    with path.open("r+b", buffering=0) as file:
        _write_all(file.fileno(), view[: first - offset] if done else view, offset)
        if done:
            _write_all(file.fileno(), view[first - offset + done :], first + done)


def _write_all(descriptor: int, view: memoryview, offset: int) -> None:
    """Write through the system's cache; it may take the bytes in several goes."""
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _write_pages(path: Path, view: memoryview, offset: int) -> int:
    """Write whole pages directly; how many bytes the disk took this way."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
    except (OSError, AttributeError):  # not every disk can, nor every system
        return 0
    done = 0
    try:
        while done < len(view):
            written = os.pwrite(descriptor, view[done:], offset + done)
            done += written // PAGE * PAGE
            if written % PAGE:
                break
    except OSError as error:
        if error.errno != errno.EINVAL:  # a disk with larger pages
            raise
    finally:
        os.close(descriptor)
    return done


@cache
def _fallocate() -> Any:
    """The system call of Linux; Python's `posix_fallocate` writes zeros where a disk cannot reserve."""
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
