"""Records survive crashes: what was written whole is read back, what was torn is dropped."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn import records
from quietnn.errors import InvalidConfig

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text().filter(lambda text: text not in {"inf", "-inf", "nan"})
)
flat_records = st.dictionaries(st.text(), scalars | st.lists(scalars, max_size=3), max_size=4)


def same(one: object, other: object) -> bool:
    """Equality that also holds for NaN and tells -0.0 from 0.0 and 1 from True."""
    return repr(one) == repr(other)


@given(flat_records)
def test_encode_and_decode_are_inverse(record: records.Record) -> None:
    line = records.encode(record)
    assert "\n" not in line
    assert same(records.decode(line), record)


@given(flat_records)
def test_a_line_is_strict_json(record: records.Record) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(records.encode(record), parse_constant=refuse)


@given(flat_records)
def test_digest_ignores_the_order_of_keys(record: records.Record) -> None:
    assert records.digest(record) == records.digest(dict(reversed(record.items())))


def test_digest_is_pinned_and_tells_configurations_apart() -> None:
    assert records.digest({"seed": 0, "wnr_db": math.inf}) == "6f96d3db3ca2"
    assert records.digest({"seed": 0}) != records.digest({"seed": 1})


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "runs.jsonl"
    assert records.read(path) == []
    records.append(path, [{"a": 1}, {"a": math.inf}])
    records.append(path, [{"a": -math.inf, "b": [1.5, "x", None]}])
    assert records.read(path) == [{"a": 1}, {"a": math.inf}, {"a": -math.inf, "b": [1.5, "x", None]}]


@pytest.mark.parametrize("torn", [b'{"a": 2', b'{"a": 2}', b'{"name": "\xc3', b"\x00\x00\x00", b"x" * 200_000])
def test_a_torn_last_line_is_left_out_and_then_overwritten(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    records.append(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(torn)
    assert records.read(path) == [{"a": 1}]
    records.append(path, [{"a": 3}])
    assert records.read(path) == [{"a": 1}, {"a": 3}]


def test_a_file_that_is_one_torn_line_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"a": 1')
    records.append(path, [{"a": 2}])
    assert records.read(path) == [{"a": 2}]


@pytest.mark.parametrize("bad", [b'{"a": 1{"a": 2}', b"[1]", b"", b'{"a": "\xff"}'])
def test_a_bad_middle_line_is_named(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"a": 1}\n' + bad + b'\n{"a": 3}\n')
    with pytest.raises(InvalidConfig, match=r"line 2 is not a record.*remove that line"):
        records.read(path)


def test_a_record_that_cannot_be_written_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    records.append(path, [{"a": 1}])
    with pytest.raises(TypeError):
        records.append(path, [{"a": 2}, {"a": object()}])
    assert records.read(path) == [{"a": 1}]
