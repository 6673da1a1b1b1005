"""Pieces of tensors: where they lie in a file, how they are read into memory and written back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quietnn.checkpoints.header import Entry, Header
from quietnn.checkpoints.sink import PAGE
from quietnn.errors import InvalidWeights

TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""The dtypes that quietnn computes with; others are copied through."""


@dataclass(frozen=True)
class Piece:
    """A stretch of one tensor.

    Attributes:
        name: the tensor's.
        dtype: its torch dtype, or uint8 for what is only copied.
        start: place of the first value in the tensor.
        begin: place of the first byte in the file's data.
        num_bytes: the piece's size.
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
        if names is None or name in names:
            yield from _cut(name, entry, chunk)


def _cut(name: str, entry: Entry, chunk: int) -> Iterator[Piece]:
    dtype = TORCH_DTYPES.get(entry.dtype, torch.uint8)
    stride = chunk * dtype.itemsize
    for begin in range(entry.begin, entry.end, stride):
        num_bytes = min(stride, entry.end - begin)
        yield Piece(name, dtype, (begin - entry.begin) // dtype.itemsize, begin, num_bytes)


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """A descriptor to read a file from."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InvalidWeights(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_into(stretch: Tensor, descriptor: int, offset: int, *, path: Path) -> None:
    """Fill a flat tensor of bytes from a file."""
    view = stretch.numpy().data
    while view:
        try:
            num_read = os.preadv(descriptor, [view], offset)
        except OSError as error:
            raise InvalidWeights(f"cannot read {path}: {error.strerror}; check the disk") from error
        if num_read == 0:
            raise InvalidWeights(f"{path} became shorter while it was read; run again once it is whole")
        view, offset = view[num_read:], offset + num_read
