"""CIFAR-10 from its official files, checked: the binary layout, the python layout, or their archives."""

import hashlib
import pickletools
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quietnn.errors import InvalidConfig, MissingData
from quietnn.tasks.data_dir import checksum, download, missing

Split = Literal["train", "test"]

_NUM_PIXELS = 3 * 32 * 32
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))


@dataclass(frozen=True)
class Layout:
    """One of the two official forms of the data set: folder, archive, and the checksums of its files by name."""

    folder: str
    suffix: str
    algorithm: str
    checksums: dict[str, str]
    archive: str
    archive_md5: str
    num_images: int = 10_000


BINARY = Layout(
    folder="cifar-10-batches-bin",
    suffix=".bin",
    algorithm="sha256",
    checksums={
        "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    archive="cifar-10-binary.tar.gz",
    archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
)
PYTHON = Layout(
    folder="cifar-10-batches-py",
    suffix="",
    algorithm="md5",
    checksums={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
)
OFFICIAL_SITE = "https://www.cs.toronto.edu/~kriz"


def load_cifar10(
    data_dir: Path,
    split: Split,
    *,
    layouts: tuple[Layout, ...] = (BINARY, PYTHON),
    site: str | None = OFFICIAL_SITE,
) -> tuple[Tensor, Tensor]:
    """Read a split from the first layout found in `data_dir`, as a folder or as its archive.

    Images (num_images, 3, 32, 32) come as uint8, their class numbers as int64.

    If there is none, the archive of the first layout is downloaded from `site`; None never downloads.
    """
    names = _TRAIN if split == "train" else ("test_batch",)
    here = (one for one in layouts if (data_dir / one.folder).is_dir() or (data_dir / one.archive).is_file())
    layout = next(here, None)
    if layout is None:
        _fetch(data_dir, layouts, site)
        layout = layouts[0]
    if (data_dir / layout.folder).is_dir():
        paths = [data_dir / layout.folder / f"{name}{layout.suffix}" for name in names]
        if lost := [path for path in paths if not path.is_file()]:
            raise missing("A file of CIFAR-10", lost, f"Unpack the official archive into {data_dir} again.")
        contents = [path.read_bytes() for path in paths]
    else:
        contents = _read_archive(data_dir / layout.archive, layout, names)
    batches = [_decode(content, layout, name) for content, name in zip(contents, names, strict=True)]
    labels = np.concatenate([batch[0] for batch in batches])
    images = np.concatenate([batch[1] for batch in batches]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def _fetch(data_dir: Path, layouts: tuple[Layout, ...], site: str | None) -> None:
    places = [data_dir / name for layout in layouts for name in (layout.folder, layout.archive)]
    remedy = f"Get {layouts[0].archive} from {OFFICIAL_SITE} and put it there."
    if site is None:
        raise missing("CIFAR-10", places, remedy)
    try:
        download(f"{site}/{layouts[0].archive}", data_dir / layouts[0].archive, md5=layouts[0].archive_md5)
    except MissingData as error:
        raise missing("CIFAR-10", places, f"{error}.\n{remedy}") from error


def _read_archive(path: Path, layout: Layout, names: tuple[str, ...]) -> list[bytes]:
    remedy = f"remove it to have it downloaded again, or get it from {OFFICIAL_SITE}"
    found = checksum(path, "md5")
    if found != layout.archive_md5:
        raise InvalidConfig(f"{path} has md5 {found}, the official archive {layout.archive_md5}; {remedy}")
    try:
        with tarfile.open(path) as archive:
            files = [archive.extractfile(f"{layout.folder}/{name}{layout.suffix}") for name in names]
            return [file.read() for file in files if file is not None]
    except (tarfile.TarError, EOFError, zlib.error, KeyError, OSError) as error:
        raise InvalidConfig(f"{path} cannot be unpacked ({error}); {remedy}") from error


def _decode(content: bytes, layout: Layout, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The labels (num_images,) and pixels (num_images, 3072) of one file."""
    file_name = f"{layout.folder}/{name}{layout.suffix}"
    remedy = f"remove it and unpack {layout.archive} again"
    if layout.suffix == ".bin" and len(content) != layout.num_images * (1 + _NUM_PIXELS):
        expected = layout.num_images * (1 + _NUM_PIXELS)
        raise InvalidConfig(f"{file_name} has {len(content)} bytes, expected {expected}: cut short? {remedy}")
    found = hashlib.new(layout.algorithm, content).hexdigest()
    if found != layout.checksums[name]:
        raise InvalidConfig(
            f"{file_name} has {layout.algorithm} {found}, the official file {layout.checksums[name]}; {remedy}"
        )
    if layout.suffix == ".bin":
        rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + _NUM_PIXELS)
        labels, pixels = rows[:, 0], rows[:, 1:]
    else:
        labels, pixels = read_pickled(content)
    if len(labels) != layout.num_images or len(pixels) != layout.num_images or labels.max() > 9:
        raise InvalidConfig(f"{file_name} does not hold {layout.num_images} images of the classes 0 to 9; {remedy}")
    return labels, pixels


def read_pickled(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Labels and pixels of a file of the python layout, whose opcodes are read and never run.

    The labels are the small numbers between the text `labels` and the next one; the pixels are the longest text.
    """
    labels, pixels, in_labels = bytearray(), b"", False
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if isinstance(argument, str | bytes):
                text = argument.encode("latin-1") if isinstance(argument, str) else argument
                in_labels, pixels = text == b"labels", max(pixels, text, key=len)
            elif in_labels and isinstance(argument, int) and opcode.name == "BININT1":
                labels.append(argument)
        return np.frombuffer(labels, np.uint8), np.frombuffer(pixels, np.uint8).reshape(-1, _NUM_PIXELS)
    except ValueError as error:
        raise InvalidConfig(f"the pickle is damaged ({error}); get the file again") from error
