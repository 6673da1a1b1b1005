"""A safetensors model of any size: two passes, a few megabytes of memory, the disk as the only limit."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from quietnn.checkpoints.atomic import replacing_file, replacing_folder
from quietnn.checkpoints.base import Change, Look
from quietnn.checkpoints.folder import Shard, all_entries, find_shards
from quietnn.checkpoints.header import Entry, encode_header
from quietnn.checkpoints.pieces import TORCH_DTYPES, Piece, pieces_of, read_into, reading
from quietnn.checkpoints.provenance import Step, history, with_step
from quietnn.checkpoints.sink import Sink
from quietnn.checkpoints.workers import Streaming, run
from quietnn.errors import InvalidWeights
from quietnn.files import sync


@dataclass(frozen=True)
class StreamedCheckpoint:
    """A safetensors file, or a folder with one or with shards; see `Checkpoint`."""

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
        """Every tensor, shard by shard."""
        return all_entries(self.shards)

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """The shape of every tensor."""
        return {name: entry.shape for name, entry in self.entries.items()}

    @property
    def floating(self) -> Collection[str]:
        """The names of the floating point tensors."""
        return {name for name, entry in self.entries.items() if entry.is_floating}

    @property
    def history(self) -> list[Any]:
        """What the first shard's metadata tell."""
        return history(self.shards[0].header.metadata)

    @cached_property
    def num_bytes(self) -> int:
        """The size of the file, or of everything in the folder."""
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files if file.is_file())

    def distinct(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names as they are: a file holds each tensor once."""
        for name in names:
            dtype = self.entries[name].dtype
            if dtype not in TORCH_DTYPES:
                raise InvalidWeights(
                    f"{name} is {dtype}; quietnn computes with {', '.join(TORCH_DTYPES)}. Convert the model "
                    f"(for example to bfloat16) before the noise, or copy that tensor as it is with --exclude '{name}'"
                )
        return tuple(names)

    def visit(self, names: Collection[str], look: Look, streaming: Streaming) -> None:
        """Show every stretch of the named tensors to a function, from several threads."""
        wanted = frozenset(names)
        for shard in self.shards:
            with reading(shard.path) as source:

                def work(piece: Piece, buffer: Tensor, shard: Shard = shard, source: int = source) -> None:
                    stretch = piece.within(buffer)
                    read_into(stretch, source, shard.header.data_start + piece.begin, path=shard.path)
                    look(piece.name, stretch.view(piece.dtype), piece.start)
                    streaming.on_progress(piece.num_bytes)

                run(pieces_of(shard.header, streaming.chunk_values, wanted), work, streaming)

    def write(self, out: Path, changes: Mapping[str, Change], step: Step, streaming: Streaming) -> None:
        """Write a copy with some tensors changed: all shards, and a folder's other files as they are."""
        if not self.path.is_dir():
            with replacing_file(out) as partial, _Flusher() as flusher:
                flusher.later(_write_shard(self.shards[0], partial, changes, step, streaming))
            return
        with replacing_folder(out) as partial:
            _copy_others(self.path, partial, {shard.path.name for shard in self.shards})
            with _Flusher() as flusher:
                for shard in self.shards:
                    target = partial / shard.path.name
                    flusher.later(_write_shard(shard, target, changes, step, streaming))


def _write_shard(shard: Shard, target: Path, changes: Mapping[str, Change], step: Step, streaming: Streaming) -> Sink:
    """Write one shard; what it returns is still to be finished."""
    header = encode_header(shard.header, with_step(shard.header.metadata, step))
    sink = Sink(target, len(header) + shard.header.data_size)
    try:
        sink.write_bytes(header, 0)
        with reading(shard.path) as source:

            def work(piece: Piece, buffer: Tensor) -> None:
                place = len(header) + piece.begin
                stretch = piece.within(buffer, place)
                read_into(stretch, source, shard.header.data_start + piece.begin, path=shard.path)
                if piece.name in changes:
                    changes[piece.name](stretch.view(piece.dtype), piece.start)
                sink.write(stretch, place)
                streaming.on_progress(piece.num_bytes)

            run(pieces_of(shard.header, streaming.chunk_values), work, streaming)
    except BaseException:
        sink.close()
        raise
    return sink


class _Flusher:
    """Makes finished files durable in the background, one after the other, and waits for them at the end."""

    def __enter__(self) -> "_Flusher":
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._pending: list[Future[None]] = []
        return self

    def later(self, sink: Sink) -> None:
        """Finish a file soon."""
        self._pending.append(self._executor.submit(sink.finish))

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=True)
        if error[0] is None:
            for pending in self._pending:
                pending.result()


def _copy_others(source: Path, target: Path, but: Collection[str]) -> None:
    """Copy everything in a folder but its shards; links are followed."""
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if path.is_dir():
            (target / place).mkdir(parents=True, exist_ok=True)
        elif path.is_file() and str(place) not in but:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / place)
            sync(target / place)
