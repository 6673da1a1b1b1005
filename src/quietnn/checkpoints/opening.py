"""Open whatever a user names: a safetensors file, a model folder, a PyTorch file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from quietnn.checkpoints.atomic import check_target
from quietnn.checkpoints.base import Checkpoint
from quietnn.checkpoints.recorded import recorded_names
from quietnn.checkpoints.selection import Selection, select
from quietnn.errors import InvalidWeights, MissingData, check_is


def as_path(path: object, name: str) -> Path:
    """A path, also where it was given as text.

    >>> as_path("model.safetensors", "source").name
    'model.safetensors'
    """
    remedy = "give the name of a file or a model folder, for example 'model.safetensors'; a network is repair(model)'s"
    check_is(path, (str, Path), name, remedy)
    return Path(cast(str, path))


def open_checkpoint(path: Path) -> Checkpoint:
    """Read and check everything but the weights themselves (a PyTorch file is loaded, but runs nothing).

    Raises:
        MissingData: if nothing is there, or no model is in the folder.
        InvalidWeights: if a file is broken or of a kind that quietnn does not read.
    """
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


def open_to_rewrite(
    source: Path,
    out: Path,
    *,
    noisy: Sequence[str],
    exclude: Sequence[str],
    overwrite: bool,
    on_selection: Callable[[Selection], None],
    recorded: bool = False,
) -> tuple[Checkpoint, Selection, tuple[str, ...]]:
    """Open a checkpoint of which a changed copy is wanted, once the copy is known to have a place.

    Its noisy tensors come with it: by all their names, and by one name each.

    Args:
        source: what to open.
        out: where the copy will be.
        noisy: patterns of the noisy tensors' names, instead of the rule.
        exclude: patterns of names to leave alone.
        overwrite: whether an output that is there may be replaced.
        on_selection: told which tensors are noisy, before the output is looked at.
        recorded: whether the noisy tensors are those that the file's history names, instead of the rule.
    """
    source, out = as_path(source, "source"), as_path(out, "out")
    checkpoint = open_checkpoint(source)
    if recorded and not noisy:
        noisy = recorded_names(checkpoint.history)
    selection = select(checkpoint.shapes, checkpoint.floating, noisy=noisy, exclude=exclude)
    names = checkpoint.distinct(selection.noisy)
    on_selection(selection)
    check_target(source, out, overwrite=overwrite, files=checkpoint.files)
    return checkpoint, selection, names
