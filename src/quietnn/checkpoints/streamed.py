"""A safetensors model of any size: two passes, a few megabytes of memory, the disk as the only limit."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quietnn.checkpoints.changes import Change, Look
from quietnn.checkpoints.disk import TORCH_DTYPES, Piece, make_file, pieces_of, read_into, uncomputable, write_from
from quietnn.checkpoints.folder import Shard, all_entries, drop_quantisation, files_below, find_shards, first_names
from quietnn.checkpoints.header import Entry, encode_header
from quietnn.checkpoints.history import Step, history, with_step
from quietnn.checkpoints.workers import Streaming, run
from quietnn.errors import InvalidWeights
from quietnn.files import replacing_file, replacing_folder

_LARGER = 2
"""Chunks of a thread that only reads: such threads are few, and small pieces would cost them twice the time."""


@dataclass(frozen=True)
class StreamedCheckpoint:
    """A safetensors file, or a folder with one or with shards."""

    path: Path
    shards: tuple[Shard, ...]

    @classmethod
    def open(cls, path: Path) -> "StreamedCheckpoint":
        """Read and check all headers and the index; the data stay on the disk."""
        checkpoint = cls(path, find_shards(path))
        if not checkpoint.entries:
            raise InvalidWeights(f"{path} holds no tensor at all; save the model again")
        return checkpoint

    @cached_property
    def entries(self) -> dict[str, Entry]:
        return all_entries(self.shards)

    @cached_property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """The shape of every tensor."""
        return {name: entry.shape for name, entry in self.entries.items()}

    @property
    def floating(self) -> Collection[str]:
        return {name for name, entry in self.entries.items() if entry.is_floating}

    @property
    def history(self) -> list[Any]:
        """What was done to it before, as the metadata of all shards tell."""
        told = [history(shard.header.metadata) for shard in self.shards]
        for shard, own in zip(self.shards, told, strict=True):
            if own != told[0]:
                raise InvalidWeights(
                    f"{shard.path.name} tells of {len(own)} steps that {self.shards[0].path.name} does not share; take "
                    "all shards from one copy of the model"
                )
        return told[0]

    @cached_property
    def files(self) -> Sequence[Path]:
        """Every file that a copy of it is made from."""
        return files_below(self.path) if self.path.is_dir() else (self.path,)

    def distinct(self, names: Sequence[str]) -> tuple[str, ...]:
        """These names, one for each tensor (a file holds tied ones once), once we know how to compute with them all."""
        for name in names:
            if self.entries[name].dtype not in TORCH_DTYPES:
                raise uncomputable(name, self.entries[name].dtype)
        return tuple(names)

    def noise_name(self, name: str) -> str:
        """The name that keys a tensor's noise: that of `named_parameters()`, where the file has another."""
        return self._first_names.get(name, name)

    @cached_property
    def _first_names(self) -> dict[str, str]:
        metadata = {key: value for shard in self.shards for key, value in (shard.header.metadata or {}).items()}
        return first_names(self.shards[0].path.parent, self.entries, metadata)

    def visit(self, names: Collection[str], look: Look, streaming: Streaming) -> None:
        """Show every stretch of the named tensors to a function, from several threads."""
        wanted, chunk = frozenset(names), _LARGER * streaming.chunk_values

        def work(job: tuple[Shard, Piece], buffer: Tensor) -> None:
            shard, piece = job
            stretch = piece.within(buffer)
            read_into(stretch, shard.path, shard.header.data_start + piece.begin)
            look(piece.name, stretch.view(piece.dtype), piece.start)
            streaming.on_progress(piece.num_bytes)

        jobs = ((shard, piece) for shard in self.shards for piece in pieces_of(shard.header, chunk, wanted))
        run(jobs, work, streaming.readers, chunk)

    def read(self, name: str) -> Tensor:
        """One tensor, whole and in its shape; to be read only. From any thread."""
        shard, entry = self._shard_of[name], self.entries[name]
        tensor = torch.empty(entry.shape, dtype=TORCH_DTYPES[entry.dtype])
        read_into(tensor.view(-1).view(torch.uint8), shard.path, shard.header.data_start + entry.begin)
        return tensor

    @cached_property
    def _shard_of(self) -> dict[str, Shard]:
        return {name: shard for shard in self.shards for name in shard.header.entries}

    def write(
        self, out: Path, changes: Mapping[str, Change], step: Step, streaming: Streaming, *, overwrite: bool
    ) -> None:
        """Write a copy with some tensors changed: all shards, and a folder's other files as they are."""
        if not self.path.is_dir():
            with replacing_file(out, overwrite=overwrite, like=self.path) as partial:
                self._write_shards([partial], changes, step, streaming)
            return
        with replacing_folder(out, overwrite=overwrite, like=self.path) as partial:
            for file in set(self.files) - {shard.path for shard in self.shards}:  # links are followed
                place = partial / file.relative_to(self.path)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, place)
            if changes and len(self.floating) == len(self.entries):
                drop_quantisation(partial / "config.json")
            self._write_shards([partial / shard.path.name for shard in self.shards], changes, step, streaming)

    def _write_shards(
        self, targets: Sequence[Path], changes: Mapping[str, Change], step: Step, streaming: Streaming
    ) -> None:
        chunk = streaming.chunk_values

        def jobs() -> Iterator[tuple[Shard, Path, int, Piece]]:
            for shard, path in zip(self.shards, targets, strict=True):
                header = encode_header(shard.header, with_step(shard.header.metadata, step))
                path.touch(shard.path.stat().st_mode & 0o666 | 0o600)  # as open to others as it was, and to us
                make_file(path, header, shard.header.data_size)
                yield from ((shard, path, len(header), piece) for piece in pieces_of(shard.header, chunk))

        def work(job: tuple[Shard, Path, int, Piece], buffer: Tensor) -> None:
            shard, path, data_start, piece = job
            place = data_start + piece.begin
            stretch = piece.within(buffer, place)
            read_into(stretch, shard.path, shard.header.data_start + piece.begin)
            if piece.name in changes:
                changes[piece.name](stretch.view(piece.dtype), piece.start)
            write_from(stretch, path, place)
            streaming.on_progress(piece.num_bytes)

        run(jobs(), work, streaming.writers, chunk)
