"""What every kind of checkpoint can do: tell its tensors, take statistics of them, be rewritten."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from quietnn.checkpoints.provenance import Step
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidWeights
from quietnn.moments import BLOCK, Moments, block_moments, empty_moments

Change = Callable[[Tensor, int], None]
"""Changes a flat stretch of a tensor in place, given the stretch and its start in the tensor."""

Look = Callable[[str, Tensor, int], None]
"""Sees a flat stretch of a tensor, given the tensor's name, the stretch and its start in the tensor."""


class Checkpoint(Protocol):
    """A model on the disk.

    Attributes:
        path: the file or folder it was opened from.
        shapes: the shape of every tensor, by name.
        floating: the names of the floating point tensors.
        history: what was done to it before, as its metadata tell.
        files: every file that a copy of it is made from.
    """

    @property
    def path(self) -> Path: ...
    @property
    def shapes(self) -> Mapping[str, Sequence[int]]: ...
    @property
    def floating(self) -> Collection[str]: ...
    @property
    def history(self) -> list[Any]: ...
    @property
    def files(self) -> Sequence[Path]: ...

    def distinct(self, names: Sequence[str]) -> tuple[str, ...]:
        """These names, one for each tensor (tied ones once), once their dtypes are known to be ones we compute with."""
        ...

    def noise_name(self, name: str) -> str:
        """The name that keys a tensor's noise: that of `named_parameters()`, see `quietnn.checkpoints.ties`."""
        ...

    def visit(self, names: Collection[str], look: Look, streaming: Streaming) -> None:
        """Show every stretch of the named tensors to a function, from several threads."""
        ...

    def read(self, name: str) -> Tensor:
        """One tensor, whole and in its shape; to be looked at only. From any thread."""
        ...

    def write(
        self, out: Path, changes: Mapping[str, Change], step: Step, streaming: Streaming, *, overwrite: bool
    ) -> None:
        """Write a copy with some tensors changed, whole or not at all."""
        ...


def moments_of(
    checkpoint: Checkpoint,
    names: Collection[str],
    streaming: Streaming,
    *,
    first: Callable[[str, Tensor], Tensor] | None = None,
) -> dict[str, Moments]:
    """The block moments of each named tensor, or of what `first` makes of it, in one pass.

    Raises:
        InvalidWeights: if a tensor holds NaN or infinity, with its name and how many.
    """
    shapes = checkpoint.shapes
    table = {name: empty_moments(math.prod(shapes[name])) for name in names}  # beforehand, in one stretch of memory
    bad: dict[str, int] = dict.fromkeys(names, 0)

    def look(name: str, values: Tensor, start: int) -> None:
        values = first(name, values) if first else values
        block = start // BLOCK
        counts, means, squares = (column[block : block - (-values.numel() // BLOCK)] for column in table[name])
        block_moments(values, into=(counts, means, squares))
        if not math.isfinite(means.sum()):
            bad[name] += int((~torch.isfinite(values)).sum())

    checkpoint.visit(names, look, streaming)
    broken = [name for name in names if bad[name]]
    if broken:
        more = f" (and so do {len(broken) - 1} more tensors)" if len(broken) > 1 else ""
        raise InvalidWeights(
            f"{broken[0]} holds {bad[broken[0]]} values that are not finite{more}; repair that tensor, "
            f"or leave it out with --exclude '{broken[0]}'"
        )
    return table
