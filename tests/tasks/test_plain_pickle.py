"""Plain data is read from pickles, and nothing in them is ever run."""

import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import InvalidConfig
from quietnn.tasks.plain_pickle import read_plain_pickle

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner, inner),
    max_leaves=12,
)


@given(PLAIN, st.sampled_from([2, 3, 4]))
def test_plain_data_round_trips(value: object, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_round_trip(protocol: int, order: str) -> None:
    array = np.asarray(np.arange(24, dtype=np.uint8).reshape(4, 6) + 200, order=order)  # type: ignore[call-overload]
    found = read_plain_pickle(pickle.dumps({"data": array, "again": array}, protocol=protocol))
    assert np.array_equal(found["data"], array)
    assert found["again"] is found["data"]


def test_python_2_byte_strings() -> None:
    """The official files were written by Python 2: SHORT_BINSTRING text, BINSTRING array bytes."""
    pixels = bytes(range(250, 256)) + bytes(2)
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87R"
    array += b"(K\x01K\x02K\x04\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    array += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array += b"\x89T" + len(pixels).to_bytes(4, "little") + pixels + b"tb"
    content = b"\x80\x02}q\x01(U\x04dataq\x04" + array + b"U\x06labels](K\x06K\x09eu."
    found = read_plain_pickle(content)
    assert found["labels"] == [6, 9]
    assert found["data"].tolist() == [[250, 251, 252, 253], [254, 255, 0, 0]]


class _Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "owned"
    with pytest.raises(InvalidConfig, match="not run"):
        read_plain_pickle(pickle.dumps({"data": _Hostile(target)}, protocol=protocol))
    assert not target.exists()


def test_other_codecs_and_dtypes_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="not run"):
        read_plain_pickle(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")
    with pytest.raises(InvalidConfig):
        read_plain_pickle(pickle.dumps(np.zeros(3), protocol=2))


@given(st.integers(0, 400), st.binary(max_size=3))
def test_damaged_pickles_raise_only_our_error(cut: int, junk: bytes) -> None:
    whole = pickle.dumps({"labels": [1, 2], "data": np.arange(9, dtype=np.uint8).reshape(3, 3)}, protocol=2)
    damaged = whole[: min(cut, len(whole) - 1)] + junk
    with contextlib.suppress(InvalidConfig):
        read_plain_pickle(damaged)


def test_a_hundred_bytes_do_not_ask_for_256_gib() -> None:
    """An array whose bytes are the number 2**38."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    number = b"\x8a\x05" + (2**38).to_bytes(5, "little")
    content = array + b"(I1\n(I1\nt(cnumpy\ndtype\n(S'u1'\ntRI00\n" + number + b"tb."
    content = array + b"(K\x01(K\x01tcnumpy\ndtype\n(X\x02\x00\x00\x00u1tRI00\n" + number + b"tb."
    content = content.replace(b"S'b'\n", b"X\x01\x00\x00\x00b")
    with pytest.raises(InvalidConfig, match="an array whose values are a int"):
        read_plain_pickle(content)


def test_a_value_that_holds_itself_many_times_is_refused_at_once() -> None:
    """Its text, or its hash, would take 2**60 steps."""
    nested = b"K\x01" + b"".join(b"q%c" % number + b"h%c" % number + b"\x86" for number in range(60))
    for end in (b"K\x02" + b"R.", b"K\x02s."):
        with pytest.raises(InvalidConfig):
            read_plain_pickle(b"}" + nested + end)
