"""Files that appear whole or not at all: written beside their place, made durable, then moved there in one step."""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from quietnn.errors import QuietnnError

_AT_FDCWD = -100
_NO_REPLACE, _EXCHANGE = 1, 2


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears with all its content; folders above it are made."""
    write_together(path.parent, {path.name: content})


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write some files of a folder, which is made if need be: no name changes before all content is on the disk."""
    with _made(folder), ExitStack() as moves:
        for name, content in files.items():
            partial = moves.enter_context(replacing_file(folder / name))
            with _in_words(folder / name), partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `replacing_file`, with the folders above it made; new ones vanish with the file if the block fails."""
    with _made(path.parent), replacing_file(path) as partial:
        yield partial


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; if the block fails, those that are new and empty are removed."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with _in_words(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in new:
            with suppress(OSError):
                place.rmdir()
        raise


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
        for path in (*partial.rglob("*"), partial):
            sync(path)
        if overwrite and out.is_dir() and any(out.iterdir()):
            _exchange(partial, out)
        else:
            partial.rename(out)  # refused by the system where a folder has something in it
        sync(out.absolute().parent)


@contextmanager
def _beside(out: Path, *, folder: bool, like: Path | None) -> Iterator[Path]:
    """A file or folder under a hidden name beside `out`.

    Its name cannot be foreseen, and what bears it already is never written to. Whatever bears it at the end is removed,
    and errors of the disk get words.
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}{secrets.randbelow(10**9):09}.part")
    with _in_words(out):
        _remove_abandoned(out)
        mode = 0o777 if like is None else like.stat().st_mode & 0o777 | 0o700
        is_own = True
        try:  # around the making too: a signal may come right after it
            with _held(partial, mode, folder=folder):
                yield partial
        except FileExistsError as error:
            is_own = error.filename != str(partial)
            raise
        finally:
            if is_own:
                _remove(partial)


@contextmanager
def _in_words(out: Path) -> Iterator[None]:
    """Turn what the system says about an output that it refuses into a `QuietnnError` with a remedy."""
    try:
        yield
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
        with suppress(OSError):  # a link or a pipe of that name is not ours
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
