"""The file that is filled in any order: the same bytes whether the disk takes pages directly or not."""

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import quietnn
from quietnn.checkpoints import disk as module
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.disk import make_file, read_into, write_from
from quietnn.checkpoints.header import PAGE
from quietnn.errors import InvalidWeights

SIZES = st.sampled_from([1, 7, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 5 * PAGE + 13])


def aligned(num_bytes: int, place: int) -> Tensor:
    """Random bytes that lie in their page of memory as `place` does in its page of a file."""
    memory = torch.empty(num_bytes + 2 * PAGE, dtype=torch.uint8)
    begin = (place - memory.data_ptr()) % PAGE
    return memory[begin : begin + num_bytes].random_(256, generator=torch.Generator().manual_seed(num_bytes))


def fill(path: Path, sizes: list[int], *, askew: int = 0) -> bytes:
    """Write pieces of these sizes, the last first; what the file should hold."""
    places = np.cumsum([0, *sizes])[:-1].tolist()
    pieces = [aligned(size, place + askew) for size, place in zip(sizes, places, strict=True)]
    make_file(path, b"", sum(sizes))
    for piece, place in reversed(list(zip(pieces, places, strict=True))):
        write_from(piece, path, place)
    return b"".join(piece.numpy().tobytes() for piece in pieces)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(SIZES, min_size=1, max_size=6), askew=st.sampled_from([0, 0, 8]))
def test_any_pieces_in_any_memory(tmp_path: Path, sizes: list[int], askew: int) -> None:
    path = tmp_path / "out"
    path.unlink(missing_ok=True)
    expected = fill(path, sizes, askew=askew)
    assert path.read_bytes() == expected


def test_whole_pages_go_past_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("this disk knows no direct writing")
    write, found = os.pwrite, {True: 0, False: 0}

    def counted(descriptor: int, view: memoryview, offset: int) -> int:
        found[bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)] += len(view)
        return write(descriptor, view, offset)

    monkeypatch.setattr(module.os, "pwrite", counted)
    fill(tmp_path / "out", [100, 10 * PAGE])
    assert found == {True: 9 * PAGE, False: PAGE + 100}


def no_direct_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module.os, "O_DIRECT", raising=False)


def refused_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk whose pages are larger than ours."""
    write = os.pwrite

    def picky(descriptor: int, view: memoryview, offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, view, offset)

    monkeypatch.setattr(module.os, "pwrite", picky)


def short_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes a little at a time."""
    write = os.pwrite
    monkeypatch.setattr(module.os, "pwrite", lambda descriptor, view, at: write(descriptor, view[: PAGE + 512], at))


def no_room_to_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(module, "_fallocate", lambda: refuse)


def no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_fallocate", lambda: None)


@pytest.mark.parametrize(
    "trouble",
    [no_direct_writing, refused_pages, short_counts, no_room_to_reserve, no_such_call],
    ids=lambda f: f.__name__,
)
def test_less_able_disks_and_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    trouble(monkeypatch)
    expected = fill(tmp_path / "out", [5, 9 * PAGE, 3 * PAGE + 100, PAGE])
    assert (tmp_path / "out").read_bytes() == expected


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(module, "_fallocate", lambda: refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No space left"):
        make_file(tmp_path / "out", b"header", 10**6)
    assert (tmp_path / "out").stat().st_size == 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_tensors_that_begin_at_odd_places(tmp_path: Path, raw_file: Callable[..., Path]) -> None:
    weight = torch.randn(300, 200, generator=torch.Generator().manual_seed(1))
    header = {
        "flags": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "a.weight": {"dtype": "F32", "shape": [300, 200], "data_offsets": [3, 3 + weight.nbytes]},
    }
    source, out = raw_file(header, b"abc" + weight.numpy().tobytes()), tmp_path / "out.safetensors"
    denoise_checkpoint(source, out, noise_variance=0.1)
    expected = quietnn.denoise({"a.weight": weight}, noise_variance=0.1).model["a.weight"]
    assert out.read_bytes().endswith(b"abc" + expected.numpy().tobytes())


def test_what_was_written_is_read_and_no_more(tmp_path: Path) -> None:
    path, found = tmp_path / "out", torch.empty(7, dtype=torch.uint8)
    make_file(path, b"head", 10)
    write_from(aligned(7, 4), path, 4)
    read_into(found, path, 4)
    assert found.equal(aligned(7, 4))
    assert path.read_bytes()[:4] == b"head"
    with pytest.raises(InvalidWeights, match="became shorter"):
        read_into(found, path, 8)
    with pytest.raises(InvalidWeights, match=r"cannot read .*No such file"):
        read_into(found, tmp_path / "none", 0)
