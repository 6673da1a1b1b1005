"""One result is one JSON line. Append, read, check, resume; no torch here, so reports redraw anywhere."""

import gzip
import hashlib
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietnn.errors import InvalidConfig
from quietnn.files import write_whole
from quietnn.records.schema import problem

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
"""A flat result: strings, numbers, booleans, None, or lists of them."""

RECORDS, CONFIG = "records.jsonl", "config.json"
"""The files of a run's folder."""

COMPRESSED = ".gz"
"""Ends the name of records that are kept compressed; new ones go into the plain file beside it."""

MOST_BYTES = 1 << 28
"""The largest file of records that is unpacked: ten times the largest known, far below the memory of a laptop."""

MOST_RECORDS = 1_000_000
"""No run has more: ten years of work at five minutes a record, and the most that a page can count."""

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_DAMAGED = ".damaged"
_SUM = ', "crc32": "'


@dataclass(frozen=True)
class Damage:
    """A line that is no sound record: the file and its number there, what is wrong with it, and its bytes."""

    place: str
    reason: str
    line: bytes

    def __str__(self) -> str:
        """For a reader: where, and what."""
        return f"{self.place} is not a record ({self.reason})"


def encode(record: Mapping[str, Any]) -> str:
    """A record as one line of strict JSON; a float that JSON lacks is written as its name.

    >>> encode({"wnr_db": float("inf"), "accuracy": 0.5})
    '{"wnr_db": "inf", "accuracy": 0.5}'
    """
    return json.dumps(_to_json(record), allow_nan=False)


def decode(line: str) -> Record:
    """The record that `encode` wrote.

    >>> decode('{"wnr_db": "inf", "accuracy": 0.5}')
    {'wnr_db': inf, 'accuracy': 0.5}
    """
    record = _from_json(json.loads(line))
    if not isinstance(record, dict):
        raise ValueError("a record is a JSON object")
    return record


def digest(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name a configuration, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(_to_json(config), sort_keys=True).encode()).hexdigest()[:12]


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file and wait until they are on the disk.

    A line torn by an earlier crash is cut off first, so a new record never joins half of an old one. Each line carries
    a checksum, so that a changed digit is seen too.
    """
    lines = "".join(_with_sum(encode(record)) + "\n" for record in records).encode()
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
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with nullcontext() if fcntl is None else _locked(folder):
        try:
            yield
        finally:
            if is_new:
                with suppress(OSError):  # not empty, as a rule
                    folder.rmdir()


def is_there(path: Path) -> bool:
    """Whether there is a file of records, plain or compressed (`records.jsonl.gz`)."""
    return path.is_file() or _compressed(path).is_file()


def read(path: Path) -> list[Record]:
    """All whole records of a file, in order; none if there is no file. A torn last line is left out.

    If the file is there compressed (`gzip records.jsonl`), its records come first.

    Raises:
        InvalidConfig: for a line in the middle that is no record, with its number and the field that does not fit.
    """
    found, damaged = read_sound(path)
    for damage in damaged:
        raise InvalidConfig(
            f"{damage}; remove that line to go on without it, or run its sweep again to measure it anew"
        )
    return found


def read_sound(path: Path) -> tuple[list[Record], list[Damage]]:
    """The records of a file that are sound, and the lines that are not; a torn last line is in neither."""
    found: list[Record] = []
    damaged: list[Damage] = []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            record = _decode_line(line)
            reason = problem(record)
        except (ValueError, RecursionError) as error:
            reason = str(error)
        if reason:
            damaged.append(Damage(f"{path}, line {number}", reason, line))
        else:
            found.append(record)
    return found, damaged


def set_damage_aside(path: Path) -> list[Damage]:
    """Move the damaged lines of a file into one beside it, so that a run can go on; returns them.

    The caller is the sole writer. A crash in between leaves a line in both files, never in neither.
    """
    _, damaged = read_sound(path)
    if damaged:
        bad = [damage.line for damage in damaged]
        aside = path.with_suffix(_DAMAGED + path.suffix)
        kept = aside.read_bytes() if aside.exists() else b""
        write_whole(aside, kept + b"".join(bad))
        write_whole(path, b"".join(line for line in _whole_lines(path) if line not in bad))
        _compressed(path).unlink(missing_ok=True)
    return damaged


def other_versions(records: Iterable[Mapping[str, Any]]) -> str:
    """A sentence about the records that another version of quietnn wrote; empty if there are none.

    >>> other_versions([{"version": "0.0.1"}, {"version": "0.0.1"}, {}])
    '2 of 3 records were written by quietnn 0.0.1; this is quietnn 0.1.0.'
    """
    import quietnn

    named = [str(record.get("version") or quietnn.__version__) for record in records]
    others = Counter(name for name in named if name != quietnn.__version__)
    if not others:
        return ""
    who = " and ".join(f"quietnn {name}" for name in sorted(others))
    return f"{others.total():,} of {len(named):,} records were written by {who}; this is quietnn {quietnn.__version__}."


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    taken = False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = True
        except OSError:
            pass  # a disk that knows no locks
        has_gone = not folder.exists() or not os.path.samestat(os.fstat(descriptor), folder.stat())
        if taken or has_gone:  # removed just now by the one that had it
            raise InvalidConfig(
                f"another run is writing to {folder}; wait until it is done, or choose another folder with --out"
            )
        yield
    finally:
        os.close(descriptor)


def _compressed(path: Path) -> Path:
    return path.with_name(path.name + COMPRESSED)


def _whole_lines(path: Path) -> list[bytes]:
    """The lines that end as such, of the compressed file and then of the plain one; none if there is neither."""
    try:
        contents = (_unpacked(_compressed(path)), path.read_bytes() if path.exists() else b"")
    except OSError as error:
        reason = error.strerror or error
        raise InvalidConfig(f"{path} cannot be read ({reason}); check that it is a file of yours") from error
    return [line for content in contents for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _unpacked(path: Path) -> bytes:
    """What a compressed file holds, empty if there is none; a small file that unpacks without end is refused."""
    if not path.exists():
        return b""
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidConfig(f"{path} is not a whole gzip file ({error}); restore it or remove it") from error
    if len(content) > MOST_BYTES:
        raise InvalidConfig(f"{path} unpacks to more than {MOST_BYTES:,} bytes; unpack it with gunzip if you trust it")
    return content


def _with_sum(text: str) -> str:
    return f'{text[:-1]}{_SUM if text != "{}" else _SUM[2:]}{zlib.crc32(text.encode()):08x}"}}'


def _decode_line(line: bytes) -> Record:
    """The record of a line, whose checksum must fit if it has one."""
    text = line.decode().rstrip("\n")
    record = decode(text)
    if "crc32" in record:
        del record["crc32"]
        body = text[: text.rfind(_SUM.strip(", "))].rstrip(", ") + "}"
        if _with_sum(body) != text:
            raise ValueError("crc32 does not fit: the line was changed after it was written")
    return record


def _end_of_whole_lines(file: Any) -> int:
    """The offset behind the last newline; all of the file is read only if its end is torn."""
    end: int = file.seek(0, os.SEEK_END)
    file.seek(max(end - 1, 0))
    if file.read(1) in (b"\n", b""):
        return end
    file.seek(0)
    return int(file.read().rfind(b"\n")) + 1


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
