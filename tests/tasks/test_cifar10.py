"""CIFAR-10 is read from every official form, and damaged files are refused with a remedy."""

import contextlib
import hashlib
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import InvalidConfig, MissingData
from quietnn.tasks.cifar10 import BINARY, PYTHON, Layout, load_cifar10, read_pickled

LayOut = Callable[..., Layout]


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("official", [BINARY, PYTHON])
def test_every_form_gives_the_same_images(
    tmp_path: Path,
    lay_out_cifar10: LayOut,
    official: Layout,
    archive: bool,
    cifar10_files: Callable[[Layout, int], dict[str, bytes]],
) -> None:
    layout = lay_out_cifar10(tmp_path, official, num_images=8, archive=archive)
    images, _ = load_cifar10(tmp_path, "train", layouts=(layout,), site=None)
    test_images, test_labels = load_cifar10(tmp_path, "test", layouts=(layout,), site=None)
    row = cifar10_files(BINARY, 8)["test_batch"][: 1 + 3072]
    assert images.shape == (40, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert test_labels.dtype == torch.int64
    assert int(test_labels[0]) == row[0]
    assert bytes(test_images[0].flatten().tolist()) == row[1:]


def test_nothing_there_lists_every_place(tmp_path: Path) -> None:
    with pytest.raises(MissingData) as caught:
        load_cifar10(tmp_path, "test", site=None)
    for name in (BINARY.folder, BINARY.archive, PYTHON.folder, PYTHON.archive, "QUIETNN_DATA", "--data-dir"):
        assert name in str(caught.value)


def test_download_from_the_site(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    site, data_dir = tmp_path / "site", tmp_path / "data"
    site.mkdir()
    layout = lay_out_cifar10(site, BINARY, archive=True)
    assert len(load_cifar10(data_dir, "test", layouts=(layout,), site=site.as_uri())[1]) == 8
    assert [path.name for path in data_dir.iterdir()] == [BINARY.archive]


def test_download_with_a_wrong_checksum_leaves_nothing(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    site, data_dir = tmp_path / "site", tmp_path / "data"
    site.mkdir()
    lay_out_cifar10(site, BINARY, archive=True)
    with pytest.raises(MissingData, match="arrived with md5"):
        load_cifar10(data_dir, "test", site=site.as_uri())
    assert not data_dir.exists()


def test_unreachable_site(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="could not be downloaded"):
        load_cifar10(tmp_path / "data", "test", site=(tmp_path / "nowhere").as_uri())


def test_truncated_file(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    layout = lay_out_cifar10(tmp_path, BINARY)
    path = tmp_path / BINARY.folder / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidConfig, match=r"test_batch.bin has 24579 bytes, expected 24584"):
        load_cifar10(tmp_path, "test", layouts=(layout,), site=None)


@pytest.mark.parametrize("official", [BINARY, PYTHON])
def test_altered_file_is_named_with_a_remedy(tmp_path: Path, lay_out_cifar10: LayOut, official: Layout) -> None:
    layout = lay_out_cifar10(tmp_path, official)
    path = tmp_path / layout.folder / f"data_batch_3{layout.suffix}"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=f"data_batch_3.*{layout.algorithm}.*unpack {layout.archive}"):
        load_cifar10(tmp_path, "train", layouts=(layout,), site=None)


def test_missing_file_of_a_folder(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    layout = lay_out_cifar10(tmp_path, BINARY)
    (tmp_path / BINARY.folder / "data_batch_2.bin").unlink()
    with pytest.raises(MissingData, match=r"data_batch_2\.bin"):
        load_cifar10(tmp_path, "train", layouts=(layout,), site=None)


def test_truncated_archive(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    layout = lay_out_cifar10(tmp_path, BINARY, archive=True)
    path = tmp_path / layout.archive
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InvalidConfig, match="md5"):
        load_cifar10(tmp_path, "test", layouts=(layout,), site=None)
    layout = replace(layout, archive_md5=hashlib.md5(path.read_bytes()).hexdigest())
    with pytest.raises(InvalidConfig, match="cannot be unpacked"):
        load_cifar10(tmp_path, "test", layouts=(layout,), site=None)


def test_labels_out_of_range(tmp_path: Path, lay_out_cifar10: LayOut) -> None:
    layout = lay_out_cifar10(tmp_path, BINARY)
    path = tmp_path / BINARY.folder / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[0] = 77
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    layout = replace(layout, checksums={**layout.checksums, "test_batch": digest})
    with pytest.raises(InvalidConfig, match="classes 0 to 9"):
        load_cifar10(tmp_path, "test", layouts=(layout,), site=None)


PIXELS = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_labels_and_pixels_of_a_pickle(protocol: int) -> None:
    batch = {"batch_label": "1 of 5", "labels": [6, 9], "data": PIXELS, "filenames": ["a.png", "b.png"]}
    labels, pixels = read_pickled(pickle.dumps(batch, protocol=protocol))
    assert labels.tolist() == [6, 9]
    assert np.array_equal(pixels, PIXELS)


def test_a_pickle_of_python_2() -> None:
    """The official files were written by Python 2: SHORT_BINSTRING text, BINSTRING array bytes."""
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87R"
    array += b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    array += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array += b"\x89T" + PIXELS.size.to_bytes(4, "little") + PIXELS.tobytes() + b"tb"
    labels, pixels = read_pickled(b"\x80\x02}q\x01(U\x04dataq\x04" + array + b"U\x06labelsq\x05](K\x06K\x09eu.")
    assert labels.tolist() == [6, 9]
    assert np.array_equal(pixels, PIXELS)


class _Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "owned"
    with pytest.raises(InvalidConfig):
        read_pickled(pickle.dumps({"labels": [1], "data": _Hostile(target)}, protocol=protocol))
    assert not target.exists()


@given(st.integers(0, 400), st.binary(max_size=3))
def test_damaged_pickles_raise_only_our_error(cut: int, junk: bytes) -> None:
    whole = pickle.dumps({"labels": [1, 2], "data": np.arange(9, dtype=np.uint8).reshape(3, 3)}, protocol=2)
    with contextlib.suppress(InvalidConfig):
        read_pickled(whole[: min(cut, len(whole) - 1)] + junk)


def test_a_hundred_bytes_do_not_ask_for_256_gib() -> None:
    """Arrays are as large as the bytes that are there, whatever number or text claims more."""
    for claim in (b"\x8a\x05" + (2**38).to_bytes(5, "little"), b"T\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x00"):
        with pytest.raises(InvalidConfig):
            read_pickled(b"\x80\x02}(U\x06labels](K\x01eU\x04data" + claim + b"u.")
