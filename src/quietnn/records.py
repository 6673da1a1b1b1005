"""One result is one JSON line. Append, read, resume; no torch here, so reports redraw anywhere."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from quietnn.errors import InvalidConfig

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
"""A flat result: strings, numbers, booleans, None, or lists of them."""

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(record: Mapping[str, Any]) -> str:
    """A record as one line of strict JSON; a float that JSON lacks is written as its name.

    >>> encode({"wnr_db": float("inf"), "accuracy": 0.5})
    '{"wnr_db": "inf", "accuracy": 0.5}'
    """
    return json.dumps({key: _to_json(value) for key, value in record.items()}, allow_nan=False)


def decode(line: str) -> Record:
    """The record that `encode` wrote.

    >>> decode('{"wnr_db": "inf", "accuracy": 0.5}')
    {'wnr_db': inf, 'accuracy': 0.5}
    """
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a record is a JSON object")
    return {key: _from_json(value) for key, value in record.items()}


def digest(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name a configuration, whatever the order of its keys."""
    canonical = json.dumps({key: _to_json(value) for key, value in config.items()}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file and wait until they are on the disk.

    A line torn by an earlier crash is cut off first, so a new record never joins half of an old one.
    """
    lines = "".join(encode(record) + "\n" for record in records).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        file.seek(_end_of_whole_lines(file))
        file.truncate()
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep a folder of records to one writer at a time; a process that dies lets go of it.

    A folder that is not there is made, and removed again if nothing was put into it. Where the system cannot lock a
    folder (Windows, some network disks) nothing is kept.

    Raises:
        InvalidConfig: if another process, or thread, is writing there.
    """
    is_new = not folder.exists()
    with _locked(folder):
        try:
            yield
        finally:
            if is_new:
                with suppress(OSError):  # not empty, as a rule
                    folder.rmdir()


def read(path: Path) -> list[Record]:
    """All whole records of a file, in order; none if there is no file. A torn last line is left out.

    Raises:
        InvalidConfig: if a line in the middle is not a record, with its number.
    """
    return list(_read_lines(path)) if path.exists() else []


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # of a disk that knows no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _taken(folder) from error
        if not folder.exists() or not os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise _taken(folder)  # by one that has just removed it
        yield
    finally:
        os.close(descriptor)


def _taken(folder: Path) -> InvalidConfig:
    return InvalidConfig(
        f"another run is writing to {folder}; wait until it is done, or choose another folder with --out"
    )


def _read_lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line.decode())
            except ValueError as error:
                raise InvalidConfig(
                    f"{path}, line {number} is not a record ({error}); remove that line to go on without it"
                ) from error


def _end_of_whole_lines(file: Any) -> int:
    """The offset behind the last newline, searched backwards in blocks."""
    position: int = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            return start + int(newline) + 1
        position = start
    return 0


def _to_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    return value
