"""Data sets in miniature, as fixtures: CIFAR-10 in its official layouts, SST-2 with a tiny encoder."""

import hashlib
import io
import pickle
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quietnn.tasks.cifar10 import Layout

NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def files(layout: Layout, num_images: int) -> dict[str, bytes]:
    """The content of each file, the same images in both layouts."""
    contents = {}
    for seed, name in enumerate(NAMES):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 10, num_images, dtype=np.uint8)
        pixels = rng.integers(0, 256, (num_images, 3072), dtype=np.uint8)
        if layout.suffix == ".bin":
            contents[name] = np.concatenate([labels[:, None], pixels], axis=1).tobytes()
        else:
            contents[name] = pickle.dumps({"labels": labels.tolist(), "data": pixels}, protocol=2)
    return contents


def lay_out(data_dir: Path, layout: Layout, *, num_images: int = 8, archive: bool = False) -> Layout:
    """Write a folder or an archive; return the layout with the checksums that belong to it."""
    contents = files(layout, num_images)
    digests = {name: hashlib.new(layout.algorithm, content).hexdigest() for name, content in contents.items()}
    layout = replace(layout, checksums=digests, num_images=num_images)
    if archive:
        path = data_dir / layout.archive
        with tarfile.open(path, "w:gz") as tar:
            for name, content in contents.items():
                member = tarfile.TarInfo(f"{layout.folder}/{name}{layout.suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return replace(layout, archive_md5=hashlib.md5(path.read_bytes()).hexdigest())
    folder = data_dir / layout.folder
    folder.mkdir()
    for name, content in contents.items():
        (folder / f"{name}{layout.suffix}").write_bytes(content)
    return layout


@pytest.fixture(name="cifar10_files")
def _cifar10_files() -> Callable[[Layout, int], dict[str, bytes]]:
    return files


@pytest.fixture(name="lay_out_cifar10")
def _lay_out_cifar10() -> Callable[..., Layout]:
    return lay_out


@pytest.fixture(scope="session", name="prepared_sst2")
def _prepared_sst2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with SST-2 in miniature and a pretrained-looking tiny encoder called `tiny`."""
    transformers = pytest.importorskip("transformers", reason="needs the [hf] extra")
    data_dir = tmp_path_factory.mktemp("data")
    (data_dir / "sst2").mkdir()
    for split, num_rows in (("train", 24), ("dev", 10), ("test", 14)):
        rows = ["1\ta fine warm film" if number % 2 else "0\tdull" for number in range(num_rows)]
        (data_dir / "sst2" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    folder = data_dir / "tiny"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "warm", "film", "dull"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return data_dir


@pytest.fixture(name="sst2_dir")
def _sst2_dir(prepared_sst2: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared_sst2, tmp_path / "data"))
