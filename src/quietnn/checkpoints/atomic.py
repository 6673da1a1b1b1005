"""Outputs that appear whole or not at all: written beside their place, made durable, then moved there in one step."""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.files import sync

_AT_FDCWD = -100
_NO_REPLACE, _EXCHANGE = 1, 2
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


@contextmanager
def replacing_file(out: Path, *, overwrite: bool = True, like: Path | None = None) -> Iterator[Path]:
    """A path to write to that takes the place of `out` at the end of the block, or vanishes.

    Where it may not `overwrite`, a file that has appeared there meanwhile stays, and this one vanishes. Others may
    read and write it as they may another file, if one is given.
    """
    with _beside(out, folder=False, like=like) as partial:
        yield partial
        sync(partial)
        if overwrite:
            partial.replace(out)
        else:
            _move_to_free_place(partial, out)
        sync(out.absolute().parent)


@contextmanager
def replacing_folder(out: Path, *, overwrite: bool = True, like: Path | None = None) -> Iterator[Path]:
    """A folder to fill that takes the place of `out` at the end of the block; the old one is then removed.

    What has appeared there meanwhile stays, and the new folder vanishes, unless it may be replaced.
    """
    with _beside(out, folder=True, like=like) as partial:
        yield partial
        for folder in {partial, *(path.parent for path in partial.rglob("*"))}:
            sync(folder)
        if overwrite and out.is_dir() and any(out.iterdir()):
            _exchange(partial, out)
        else:
            partial.rename(out)  # refused by the system where a folder has something in it
        sync(out.absolute().parent)


@contextmanager
def _beside(out: Path, *, folder: bool, like: Path | None) -> Iterator[Path]:
    """A file or folder under a hidden name beside `out`.

    Whatever bears that name at the end is removed, and errors of the disk get words.
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        _remove_abandoned(out)
        mode = 0o777 if like is None else like.stat().st_mode & 0o777 | 0o700
        with _held(partial, mode, folder=folder):
            try:
                yield partial
            finally:
                _remove(partial)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "check the folder and its permissions"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "make room or write elsewhere"
        elif error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            remedy = "it appeared in the meantime: choose another name, or replace it with --overwrite"
        raise QuietnnError(f"cannot write {out}: {reason}; nothing was left behind, {remedy}") from error


@contextmanager
def _held(partial: Path, mode: int, *, folder: bool) -> Iterator[None]:
    """Create the file or folder and hold a lock on it for as long as this process lives."""
    if folder:
        partial.mkdir(mode)
        descriptor = os.open(partial, os.O_RDONLY)
    else:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode & 0o666)
    try:
        with suppress(OSError):  # some network disks know no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(out: Path) -> None:
    """Remove what killed runs left beside this output: nobody holds its lock any more."""
    for path in out.absolute().parent.iterdir():
        middle = path.name.removeprefix(f".{out.name}.").removesuffix(".part")
        if not (middle.isdecimal() and path.name == f".{out.name}.{middle}.part"):
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _move_to_free_place(new: Path, place: Path) -> None:
    """Give a file its name in one step, unless something bears that name already: FileExistsError."""
    number = _rename(new, place, _NO_REPLACE)
    if number in (errno.ENOSYS, errno.EINVAL):  # neither every system nor every disk can; then a look has to do
        number = errno.EEXIST if place.exists() or place.is_symlink() else 0
        if not number:
            new.rename(place)
    if number:
        raise OSError(number, os.strerror(number), str(place))


def _rename(new: Path, old: Path, flags: int) -> int:
    """Linux's `renameat2`; the number of its error, 0 for none."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return errno.ENOSYS
    done = renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), flags) == 0
    return 0 if done else ctypes.get_errno()


def _exchange(new: Path, old: Path) -> None:
    """Swap two names in one step where the system can, else in two; `new` then names what was old."""
    if _rename(new, old, _EXCHANGE) == 0:
        return
    aside = new.with_name(new.name.removesuffix(".part") + "0.part")
    old.rename(aside)
    new.rename(old)
    aside.rename(new)
