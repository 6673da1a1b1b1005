"""What can be opened, and where a copy may go: refusals before anything is written."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from torch import Tensor

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.header import read_header
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData, QuietnnError

Leftovers = Callable[[], list[str]]


Raw = Callable[..., Path]


Run = Callable[..., str]


def test_an_old_output_is_replaced_only_when_asked(tmp_path: Path, sharded: Path, leftovers: Leftovers) -> None:
    out = tmp_path / "out"
    out.mkdir()
    denoise_checkpoint(sharded, out, noise_variance=0.01)  # an empty folder is no output
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match="there already"):
        denoise_checkpoint(sharded, out, noise_variance=0.02)
    assert (out / "mine.txt").exists()
    denoise_checkpoint(sharded, out, noise_variance=0.02, overwrite=True)
    assert not (out / "mine.txt").exists()
    assert leftovers() == []


def test_outputs_that_would_hurt_the_input(tmp_path: Path, file: Path, sharded: Path) -> None:
    before = file.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(file)
    for source, out, message in (
        (file, file, "the input itself"),
        (file, tmp_path / "link.safetensors", "the input itself"),
        (sharded, sharded, "the input itself"),
        (sharded, sharded / "out", "inside each other"),
        (sharded, tmp_path, "inside each other"),
        (sharded, file, "is a file and the input a folder"),
        (file, sharded, "is a folder and the input a file"),
        (file, tmp_path / "out.pt", "must end in .safetensors"),
        (sharded, Path(), "no name of its own"),
        (sharded, Path(".."), "no name of its own"),
    ):
        with pytest.raises(InvalidConfig, match=message):
            denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    with pytest.raises(MissingData, match="make it first"):
        denoise_checkpoint(file, tmp_path / "no" / "out.safetensors", noise_variance=0.01)
    assert file.read_bytes() == before


def test_a_link_of_the_input_into_the_output(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    """Replacing the output would remove what is being read."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    file.rename(out / "model.safetensors")
    (source / "model.safetensors").symlink_to(out / "model.safetensors")
    with pytest.raises(InvalidConfig, match="is a link into"):
        denoise_checkpoint(source, out, noise_variance=0.01, overwrite=True)
    assert load_file(out / "model.safetensors")["fc.weight"].equal(state["fc.weight"])


@pytest.mark.parametrize("there", ["empty", "full", "nothing"])
def test_an_output_folder_that_is_a_link(tmp_path: Path, sharded: Path, there: str) -> None:
    if there != "nothing":
        (tmp_path / there).mkdir()
    if there == "full":
        (tmp_path / "full" / "config.json").write_text("{}")
    (tmp_path / "out").symlink_to(tmp_path / there)
    with pytest.raises(InvalidConfig, match=r"out is a link; give the folder itself"):
        denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01, overwrite=True)
    assert (tmp_path / "out").is_symlink()


def test_a_folder_without_a_model_is_not_replaced(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("mine")
    with pytest.raises(InvalidConfig, match=r"does not look like a model \(one.jpg is in it\)"):
        denoise_checkpoint(sharded, tmp_path / "photos", noise_variance=0.01, overwrite=True)
    assert (tmp_path / "photos" / "one.jpg").read_text() == "mine"


def test_a_disk_that_is_too_full_is_seen_before_reading(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quietnn.checkpoints import opening

    monkeypatch.setattr(opening.shutil, "disk_usage", lambda folder: _Usage())
    with pytest.raises(QuietnnError, match="has 5 free"):
        denoise_checkpoint(file, tmp_path / "out.safetensors", noise_variance=0.01)


class _Usage:
    free = 5


def test_other_endings_and_pipes(tmp_path: Path, refused: Run) -> None:
    (tmp_path / "weights.npz").write_bytes(np.zeros(3).tobytes())
    assert "reads .safetensors, .pt" in refused(tmp_path / "weights.npz")
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert "not a regular file" in refused(tmp_path / "pipe.safetensors")


def test_errors_have_kinds(tmp_path: Path, file: Path, raw_file: Raw) -> None:
    with pytest.raises(MissingData):
        read_header(tmp_path / "none.safetensors")
    with pytest.raises(InvalidWeights):
        read_header(raw_file(b"{"))
    with pytest.raises(InvalidConfig, match="there already"):
        denoise_checkpoint(file, raw_file(b"{"), noise_variance=0.1)
