"""Records survive crashes: what was written whole is read back, what was torn is dropped."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn import records
from quietnn.errors import InvalidConfig

RESULTS = Path(__file__).parents[1] / "results"

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


RESULT = {"experiment": "noisy_inference", "method": "ml", "wnr_db": 3.0, "draw": 0, "accuracy": 0.5}


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.jsonl*")), ids=lambda path: path.parent.name)
def test_the_stored_records_are_sound(path: Path) -> None:
    content = gzip.decompress(path.read_bytes()) if path.suffix == records.COMPRESSED else path.read_bytes()
    assert len(records.read(path.parent / path.name.removesuffix(records.COMPRESSED))) == len(content.splitlines())


def compress(path: Path) -> Path:
    packed = path.with_name(path.name + records.COMPRESSED)
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def test_compressed_records_are_read_and_a_run_goes_on_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT, RESULT | {"draw": 1}])
    compress(path)
    assert records.is_there(path)
    assert [record["draw"] for record in records.read(path)] == [0, 1]
    records.append(path, [RESULT | {"draw": 2}])
    assert [record["draw"] for record in records.read(path)] == [0, 1, 2]


def test_damage_in_compressed_records_is_set_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT, RESULT | {"draw": 1}])
    path.write_bytes(path.read_bytes() + b"half of\n")
    packed = compress(path)
    records.append(path, [RESULT | {"draw": 2}])
    assert len(records.set_damage_aside(path)) == 1
    assert not packed.exists()
    assert [record["draw"] for record in records.read(path)] == [0, 1, 2]


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-9], lambda packed: b"no gzip", lambda packed: packed[:12]])
def test_a_broken_gzip_file_is_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT])
    packed = compress(path)
    packed.write_bytes(spoil(packed.read_bytes()))
    with pytest.raises(InvalidConfig, match=r"records.jsonl.gz is not a whole gzip file"):
        records.read(path)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT])
    compress(path)
    monkeypatch.setattr(records, "MOST_BYTES", 10)
    with pytest.raises(InvalidConfig, match="unpacks to more than 10 bytes"):
        records.read(path)


def test_a_nest_without_end_and_text_that_is_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for line in ("[" * 100_000, '{"task": "\\ud800"}'):
        path.write_text(line + "\n")
        with pytest.raises(InvalidConfig, match="line 1 is not a record"):
            records.read(path)


def test_a_digit_that_was_changed_on_the_disk_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT, {}])
    assert records.read(path) == [RESULT, {}]
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    with pytest.raises(InvalidConfig, match=r"line 1 is not a record .crc32 does not fit: the line was changed"):
        records.read(path)


def test_damage_is_set_aside_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT, RESULT | {"draw": 1}, RESULT | {"draw": 2}])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"half of \xff\n" + lines[2] + b'{"torn')
    [damage] = records.set_damage_aside(path)
    assert damage.place == f"{path}, line 2"
    assert [record["draw"] for record in records.read(path)] == [0, 2]
    assert (tmp_path / "records.damaged.jsonl").read_bytes() == b"half of \xff\n"
    assert records.set_damage_aside(path) == []


def test_records_of_another_version_are_said_so(tmp_path: Path) -> None:
    assert records.other_versions([RESULT]) == ""
    assert "1 of 2 records were written by quietnn 9.9" in records.other_versions([RESULT, {"version": "9.9"}])
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT | {"version": "9.9", "accuracy": [0.5]}])
    with pytest.raises(InvalidConfig, match=r"quietnn '9.9' wrote it and this is"):
        records.read(path)
