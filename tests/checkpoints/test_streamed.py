"""Safetensors models of any size: shards, folders and links are kept, durable and as private as they were."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

import quietnn
from quietnn.channels.awgn import AWGN
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.errors import InvalidWeights
from quietnn.observation import observe

Same = Callable[[Tensor, Tensor], bool]
NOISY = ("scale", "conv.weight", "conv.bias", "fc.weight")


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_shards_are_one_model(
    tmp_path: Path, sharded: Path, state: dict[str, Tensor], groups: str, same_bits: Same
) -> None:
    out = tmp_path / "clean"
    denoise_checkpoint(sharded, out, noise_variance=0.02, groups=groups)
    expected = quietnn.denoise(observe(state, noise_variance=0.02, noisy=NOISY), groups=groups).model
    found = {name: tensor for shard in sorted(out.glob("*.safetensors")) for name, tensor in load_file(shard).items()}
    assert all(same_bits(found[name], tensor) for name, tensor in expected.items())
    files = {str(path.relative_to(sharded)): path for path in sharded.rglob("*") if path.is_file()}
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == set(files)
    for name, path in files.items():
        if not name.endswith(".safetensors"):
            assert (out / name).read_bytes() == path.read_bytes()


def test_links_in_a_folder_are_followed(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "notes.txt").write_text("far")
    (sharded / "linked").symlink_to(tmp_path / "elsewhere")
    (sharded / "linked.txt").symlink_to(sharded / "sub" / "notes.txt")
    denoise_checkpoint(sharded, tmp_path / "out", noise_variance=0.01)
    assert (tmp_path / "out" / "linked" / "deep" / "notes.txt").read_text() == "far"
    assert (tmp_path / "out" / "linked.txt").read_text() == "hello"
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_what_others_may_not_read_stays_so(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    source: Path = request.getfixturevalue(kind)
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    for file, mode in zip(files, (0o600, 0o644, 0o400), strict=False):
        file.chmod(mode)
    if source.is_dir():
        source.chmod(0o700)
    out = tmp_path / f"out{source.suffix}"
    denoise_checkpoint(source, out, noise_variance=0.01)
    assert out.stat().st_mode == source.stat().st_mode
    for file in files:
        copied = out / file.name if source.is_dir() else out
        assert copied.stat().st_mode & 0o777 == file.stat().st_mode & 0o777 | 0o200


@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_every_file_and_folder_is_made_durable(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the output gets its name, all that is in it is on the disk; afterwards the name is, too."""
    source: Path = request.getfixturevalue(kind)
    out = tmp_path / ("out" if source.is_dir() else "out.safetensors")
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    denoise_checkpoint(source, out, noise_variance=0.01)
    [partial] = {path for path in synced if path.parent == tmp_path and path.name.startswith(f".{out.name}.")}
    expected = {partial / path.name for path in source.iterdir()} if source.is_dir() else set()
    assert {partial, *expected, tmp_path} <= set(synced)
    assert synced[-1] == tmp_path


def test_shards_of_two_copies(sharded: Path, tmp_path: Path) -> None:
    """A shard that met another noise than the first one is from another copy of the model."""
    noisy = tmp_path / "noisy"
    transmit_checkpoint(sharded, noisy, channel=AWGN(wnr_db=10.0), seed=1)
    last = max(noisy.glob("*.safetensors"))
    last.write_bytes((sharded / last.name).read_bytes())
    with pytest.raises(InvalidWeights, match="from one copy"):
        denoise_checkpoint(noisy, tmp_path / "out", recorded=True)
