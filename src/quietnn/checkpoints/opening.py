"""Open whatever a user names (a safetensors file, a model folder, a PyTorch file), and find a place for its copy."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Union, cast

from quietnn.checkpoints.changes import Change
from quietnn.checkpoints.history import Step, recorded_names
from quietnn.checkpoints.selection import Selection, select
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError, check_is

if TYPE_CHECKING:
    from quietnn.checkpoints.streamed import StreamedCheckpoint
    from quietnn.checkpoints.torch_file import TorchCheckpoint

_FILE_SUFFIXES = (".safetensors", ".pt", ".pth")
_MODEL_SUFFIXES = (*_FILE_SUFFIXES, ".bin")

Checkpoint = Union["StreamedCheckpoint", "TorchCheckpoint"]
"""A model on the disk, of either kind."""


def as_path(path: object, name: str) -> Path:
    """A path, also where it was given as text.

    >>> as_path("model.safetensors", "source").name
    'model.safetensors'
    """
    remedy = "give the name of a file or a model folder, for example 'model.safetensors'; a network is repair(model)'s"
    check_is(path, (str, Path), name, remedy)
    return Path(cast(str, path))


def open_checkpoint(path: Path) -> Checkpoint:
    """Read and check everything but the weights themselves (a PyTorch file is loaded, but runs nothing)."""
    from quietnn.checkpoints.streamed import StreamedCheckpoint  # what reads files is imported with the first one
    from quietnn.checkpoints.torch_file import SUFFIXES, TorchCheckpoint

    path = as_path(path, "source")
    if not path.exists():
        raise MissingData(f"there is no {path}; give a .safetensors or .pt file, or a model folder")
    if path.is_dir() or path.suffix == ".safetensors":
        return StreamedCheckpoint.open(path)
    if path.suffix in SUFFIXES:
        return TorchCheckpoint.open(path)
    raise InvalidWeights(f"{path} ends in {path.suffix!r}; quietnn reads .safetensors, .pt, .pth and model folders")


class RewriteOptions(TypedDict, total=False):
    """What can be asked of every copy of a checkpoint.

    Attributes:
        noisy: patterns of the noisy tensors' names, instead of the rule.
        exclude: patterns of names to leave alone.
        overwrite: replace an output that is there.
        streaming: threads and chunks.
        on_selection: told which tensors are noisy, before anything is written.
    """

    noisy: Sequence[str]
    exclude: Sequence[str]
    overwrite: bool
    streaming: Streaming | None
    on_selection: Callable[[Selection], None]


@dataclass(frozen=True)
class Rewriting:
    """A checkpoint of which a changed copy is wanted, once the copy is known to have a place.

    Its noisy tensors come with it: by all their names (`selection`), and by one name each (`names`).
    """

    checkpoint: Checkpoint
    selection: Selection
    names: tuple[str, ...]
    out: Path
    streaming: Streaming
    overwrite: bool

    @classmethod
    def open(
        cls,
        source: Path,
        out: Path,
        *,
        noisy: Sequence[str] = (),
        exclude: Sequence[str] = (),
        overwrite: bool = False,
        streaming: Streaming | None = None,
        on_selection: Callable[[Selection], None] = lambda selection: None,
        recorded: bool = False,
    ) -> "Rewriting":
        """Open a checkpoint, choose its noisy tensors (by the rule, or as `recorded` in it), and check the output."""
        source, out = as_path(source, "source"), as_path(out, "out")
        checkpoint = open_checkpoint(source)
        if recorded and not noisy:
            noisy = recorded_names(checkpoint.history)
        selection = select(checkpoint.shapes, checkpoint.floating, noisy=noisy, exclude=exclude)
        names = checkpoint.distinct(selection.noisy)
        on_selection(selection)
        check_target(source, out, overwrite=overwrite, files=checkpoint.files)
        return cls(checkpoint, selection, names, out, streaming or Streaming(), overwrite)

    def write(self, changes: Mapping[str, Change], step: Step) -> None:
        """Write the copy, whole or not at all; its history tells the step and the noisy tensors."""
        step = {**step, "tensors": self.selection.noisy}
        self.checkpoint.write(self.out, changes, step, self.streaming, overwrite=self.overwrite)


def check_target(
    source: Path, out: Path, *, overwrite: bool, files: Collection[Path], suffix: str | None = None
) -> None:
    """Refuse, before anything is read or written, an output that could not be put in its place.

    `files` are all that is read, wherever links of the input lead. With a `suffix`, the output is a file of another
    format than the input.
    """
    folder = out.absolute().parent
    if out.name in ("", ".."):
        raise InvalidConfig(f"the output {out} has no name of its own; write its name out")
    if not folder.is_dir():
        raise MissingData(f"there is no folder {folder} to write {out.name} into; make it first")
    if out.exists() and out.samefile(source):
        raise InvalidConfig(f"{out} is the input itself; write to another name")
    if source.is_dir():
        _check_folder(source, out, files)
    elif out.is_dir():
        raise InvalidConfig(f"{out} is a folder and the input a file; give the name of a file")
    elif suffix is not None and out.suffix != suffix:
        raise InvalidConfig(f"what stands beside weights is written as safetensors; name it {out.stem}{suffix}")
    elif suffix is None and out.suffix != source.suffix:
        raise InvalidConfig(f"the output {out.name} must end in {source.suffix} like the input; formats are kept")
    _check_replaceable(out, overwrite=overwrite)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise QuietnnError(f"cannot write into {folder}: permission denied; choose a folder of your own")
    num_bytes = sum(file.stat().st_size for file in files)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise QuietnnError(f"{out} needs {num_bytes:,} bytes and {folder} has {free:,} free; make room or go elsewhere")


def _check_folder(source: Path, out: Path, files: Collection[Path]) -> None:
    """Refuse a folder whose replacement would take the input with it, and what is no folder."""
    inner, outer = out.resolve(), source.resolve()
    if not out.exists() and out.suffix in _FILE_SUFFIXES:
        raise InvalidConfig(f"the input is a folder, and {out.name} is the name of a file; give the name of a folder")
    if outer in inner.parents or inner in outer.parents:
        raise InvalidConfig(f"{out} and {source} lie inside each other; write somewhere else")
    if out.is_symlink():
        raise InvalidConfig(f"{out} is a link; give the folder itself, {inner}, or another name")
    if out.exists() and not out.is_dir():
        raise InvalidConfig(f"{out} is a file and the input a folder; give the name of a folder")
    for file in files:
        if inner in file.resolve().parents:
            raise InvalidConfig(f"{file} of the input is a link into {out}; write somewhere else")


def _check_replaceable(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything unasked, and a folder that holds no model even then."""
    inside = list(out.iterdir()) if out.is_dir() else []
    if not (inside or (out.exists() and not out.is_dir()) or out.is_symlink()):
        return
    if not overwrite:
        raise InvalidConfig(f"{out} is there already; choose another name, or replace it with --overwrite")
    if inside and not any(path.suffix in _MODEL_SUFFIXES or path.name == "config.json" for path in inside):
        raise InvalidConfig(
            f"{out} does not look like a model ({inside[0].name} is in it), and --overwrite would remove all of it; "
            "choose another name, or empty it yourself"
        )
