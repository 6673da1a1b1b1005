"""Headers of safetensors files: unsound ones are refused with what is wrong."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietnn.checkpoints.header import MAX_HEADER_BYTES, read_header
from quietnn.errors import InvalidWeights

Raw = Callable[..., Path]


Run = Callable[..., str]


def entry(begin: int, end: int, *, shape: Any = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"", b"", "does not begin with a brace"),
        (b"{", b"", "Expecting"),
        (b"[1]", b"", "does not begin with a brace"),
        (b'{"w": \xff}', b"", "codec can't decode"),
        (b'{"w": NaN}', b"", "NaN stands in its header"),
        (b'{"a":' * 100_000, b"", "nested too deeply"),
        (b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"1234", "surrogates not allowed"),
        (b'{"w":' + b"9" * 5000 + b"}", b"", "integer string conversion"),
        ({"w": 3}, b"", "is not described by"),
        ({"w": {"dtype": "F32", "shape": [1]}}, b"1234", "is not described by"),
        ({"w": entry(0, 4, dtype="F33")}, b"1234", "unknown dtype 'F33'"),
        ({"w": entry(0, 4, shape=[-1])}, b"1234", "not a list of sizes"),
        ({"w": entry(0, 4, shape=[True])}, b"1234", "not a list of sizes"),
        ({"w": entry(0, 4, shape=[1.0])}, b"1234", "not a list of sizes"),
        ({"w": entry(0, 4, shape=[2**64])}, b"1234", "not a list of sizes"),
        ({"w": entry(0, 4, shape=[2**62] * 1000)}, b"1234", "more than 2^63 values"),
        ({"w": entry(0, 4, shape=[2])}, b"1234", "has 4 bytes where F32"),
        ({"w": {**entry(0, 4), "data_offsets": [4, 0]}}, b"1234", "cut short or moved"),
        ({"w": {**entry(0, 4), "data_offsets": [0]}}, b"1234", "not two places"),
        ({"w": entry(0, 400)}, b"1234", "cut short or moved"),
        ({"a": entry(0, 8), "b": entry(4, 12)}, b"1" * 12, "overlaps its neighbour"),
        ({"a": entry(0, 4), "b": entry(0, 4)}, b"1" * 4, "overlaps its neighbour"),
        ({"a": entry(0, 4), "b": entry(8, 12)}, b"1" * 12, "leaves a gap"),
        ({"a": entry(0, 4)}, b"1" * 12, "end at byte 4 of 12"),
        (b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{}}', b"1", "'a' is named twice"),
        ({"__metadata__": {"a": 1}, "w": entry(0, 4)}, b"1234", "metadata are not text"),
        ({"__metadata__": [], "w": entry(0, 4)}, b"1234", "metadata are not text"),
        ({}, b"", "holds no tensor at all"),
    ],
)
def test_unsound_headers(raw_file: Raw, refused: Run, header: Any, data: bytes, message: str) -> None:
    assert message in " ".join(refused(raw_file(header, data)).split())


def test_a_name_given_twice_among_many(raw_file: Raw) -> None:
    begin = time.monotonic()
    with pytest.raises(InvalidWeights, match="'k20000' is named twice"):
        read_header(raw_file(b"{" + b"".join(b'"k%d":0,' % number for number in range(20_001)) + b'"k20000":1}'))
    assert time.monotonic() - begin < 5  # for each name a search through all of them took 15


@pytest.mark.parametrize("length", [2**63, 2**63 - 1, 2**64 - 1, MAX_HEADER_BYTES + 1])
def test_a_header_longer_than_any(raw_file: Raw, refused: Run, length: int) -> None:
    assert f"claims {length} bytes" in refused(raw_file(b"{}", length=length))


@pytest.mark.parametrize("num_bytes", [0, 5, 8, 40, 4000, 281_000])
def test_truncated_files(file: Path, refused: Run, num_bytes: int) -> None:
    os.truncate(file, num_bytes)
    assert "not a sound safetensors file" in refused(file)
