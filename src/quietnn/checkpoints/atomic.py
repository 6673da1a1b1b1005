"""Outputs of checkpoints: refused before anything is read where they could not be put in their place."""

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.files import replacing_file, replacing_folder

__all__ = ["check_target", "replacing_file", "replacing_folder"]

_MODEL_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


def check_target(source: Path, out: Path, *, overwrite: bool, files: Collection[Path]) -> None:
    """Refuse, before anything is read or written, an output that could not be put in its place.

    Args:
        source: the input.
        out: where its copy will be.
        overwrite: whether an output that is there may be replaced.
        files: all that is read, wherever links of the input lead.

    Raises:
        InvalidConfig: if it is there already, is the input, or is of another kind (file or folder) than the input.
        MissingData: if the folder to write into is not there.
        QuietnnError: if that folder is read-only or its disk too full.
    """
    folder = out.absolute().parent
    if out.name in ("", ".."):
        raise InvalidConfig(f"the output {out} has no name of its own; write its name out")
    if not folder.is_dir():
        raise MissingData(f"there is no folder {folder} to write {out.name} into; make it first")
    if out.exists() and out.samefile(source):
        raise InvalidConfig(f"{out} is the input itself; write to another name")
    if source.is_dir():
        if not out.exists() and out.suffix in (".safetensors", ".pt", ".pth"):
            raise InvalidConfig(
                f"the input is a folder, and {out.name} is the name of a file; give the name of a folder"
            )
        _check_folder(source, out, files)
    elif out.is_dir():
        raise InvalidConfig(f"{out} is a folder and the input a file; give the name of a file")
    elif out.suffix != source.suffix:
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
