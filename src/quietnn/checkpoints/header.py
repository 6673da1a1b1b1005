"""The header of a safetensors file: read with suspicion, written with its tensor entries as they were.

A file is 8 bytes of length (little endian), that many bytes of JSON, then the data. The JSON maps every tensor's name
to its dtype, its shape and the stretch of the data it fills; together the stretches fill the data without a gap.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietnn.errors import InvalidWeights, MissingData

PAGE = 4096
"""What the disk takes directly begins and ends at multiples of this, in the file and in memory."""

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library itself."""

BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""Bits of a value of each dtype that the format knows."""

_METADATA = "__metadata__"
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its dtype, its shape and the bytes `begin .. end` of the data that hold it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def is_floating(self) -> bool:
        """Whether its values are real floating point numbers of any width."""
        return self.dtype.startswith(("F", "BF"))


@dataclass(frozen=True)
class Header:
    """What a file holds: its tensors in their order, its metadata if it has any, and where the data start."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str] | None
    data_start: int
    data_size: int


def read_header(path: Path) -> Header:
    """Read and check the header of a safetensors file; every tensor it names is then known to be there."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
            raise InvalidWeights(f"{path} is not a regular file; give a safetensors file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = _length(file.read(8), size)
            text = file.read(length)
        return parse_header(text, size - 8 - length)
    except FileNotFoundError as error:
        raise MissingData(f"there is no file {path}; give an existing one") from error
    except OSError as error:
        raise InvalidWeights(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    except RecursionError as error:
        raise InvalidWeights(f"{path} is not a sound safetensors file: its header is nested too deeply") from error
    except ValueError as error:
        raise InvalidWeights(f"{path} is not a sound safetensors file: {error}; fetch or save it again") from error


def parse_header(text: bytes, data_size: int) -> Header:
    """Check the JSON of a header against the size of the data that follow it; ValueError tells what is wrong.

    >>> parse_header(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8).entries["w"].shape
    (2,)
    """
    if not text.startswith(b"{"):
        raise ValueError("it does not begin with a brace")
    fields = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    metadata = _metadata(fields.pop(_METADATA, None))
    entries = {name: _entry(name, value, data_size) for name, value in fields.items()}
    _check_coverage(entries, data_size)
    return Header(entries, metadata, 8 + len(text), data_size)


def encode_header(header: Header, metadata: Mapping[str, str]) -> bytes:
    """The header as the first bytes of a file, with other metadata; the tensors keep order and offsets.

    >>> header = parse_header(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8)
    >>> encode_header(header, {"made": "by hand"})[8:].rstrip()  # spaces follow, up to the end of a page
    b'{"__metadata__":{"made":"by hand"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    """
    fields: dict[str, Any] = {_METADATA: dict(metadata)}
    for name, entry in header.entries.items():
        offsets = [entry.begin, entry.end]
        fields[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % PAGE)  # tensors of whole pages then lie on pages, and go straight to the disk
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidWeights(f"the new header has {len(text)} bytes, more than the format's {MAX_HEADER_BYTES}")
    return len(text).to_bytes(8, "little") + text


def _length(raw: bytes, size: int) -> int:
    """The length of the header, which the first eight bytes tell, of a file of that size."""
    if size == 0:
        raise ValueError("it is empty")
    if len(raw) < 8:
        raise ValueError(f"it has {size} bytes where the header's length alone takes 8")
    length = int.from_bytes(raw, "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header claims {length} bytes, the limit is {MAX_HEADER_BYTES}")
    if length > size - 8:
        raise ValueError(f"its header claims {length} bytes and only {size - 8} follow, so it was cut short")
    return length


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} is named twice in its header")
    return fields


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} stands in its header")


def _metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("its metadata are not text by name")
    _check_text(*value, *value.values())
    return value


def _check_text(*texts: str) -> None:
    for text in texts:
        text.encode()  # half of a surrogate pair is a ValueError


def _entry(name: str, value: Any, data_size: int) -> Entry:
    _check_text(name)
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"{name!r} has the unknown dtype {str(dtype)[:40]!r}")
    if not _are_sizes(shape):
        raise ValueError(f"{name!r} has a shape that is not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{name!r} has data_offsets that are not two places")
    begin, end = offsets
    if not begin <= end <= data_size:
        raise ValueError(f"{name!r} claims the bytes {begin} to {end} of {data_size}; the data are cut short or moved")
    num_bits = _num_values(name, shape) * BITS[dtype]
    if num_bits != (end - begin) * 8:
        raise ValueError(f"{name!r} has {end - begin} bytes where {dtype} of shape {shape[:8]} takes {num_bits / 8:g}")
    return Entry(dtype, tuple(shape), begin, end)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= _LARGEST for size in value)


def _num_values(name: str, shape: Sequence[int]) -> int:
    """The product of the sizes; one past 2^63 is stopped early, before it takes for ever."""
    if 0 in shape:
        return 0
    product = 1
    for size in shape:
        product *= size
        if product > _LARGEST:
            raise ValueError(f"{name!r} has a shape of more than 2^63 values")
    return product


def _check_coverage(entries: Mapping[str, Entry], data_size: int) -> None:
    """Refuse stretches that overlap or leave a gap."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            kind = "overlaps its neighbour" if entry.begin < reached else "leaves a gap before it"
            raise ValueError(f"{name!r} begins at byte {entry.begin} of the data and {kind}, which ends at {reached}")
        reached = entry.end
    if reached != data_size:
        raise ValueError(f"its tensors end at byte {reached} of {data_size} bytes of data")
