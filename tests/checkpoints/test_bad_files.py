"""Files that must be refused: a message that names the trouble, exit code 2, and nothing written."""

import json
import os
import pickle
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.folder import find_shards
from quietnn.checkpoints.header import MAX_HEADER_BYTES, read_header
from quietnn.cli.main import main
from quietnn.errors import InvalidConfig, InvalidWeights, MissingData

Raw = Callable[..., Path]
Run = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Denoises, transmits and inspects from the command line; the message once every exit was 2 and nothing changed."""

    def run(source: Path) -> str:
        suffix = "" if source.is_dir() else source.suffix
        before = sorted(tmp_path.rglob("*"))
        for verb in (
            ["denoise", str(source), str(tmp_path / f"out{suffix}"), "--wnr-db", "3"],
            ["transmit", str(source), str(tmp_path / f"out{suffix}"), "--wnr-db", "3", "--seed", "0"],
            ["inspect", str(source)],
        ):
            monkeypatch.setattr(sys, "argv", ["quietnn", *verb])
            with pytest.raises(SystemExit) as stop:
                main()
            assert stop.value.code == 2
        assert sorted(tmp_path.rglob("*")) == before
        return capsys.readouterr().err

    return run


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


def test_values_that_are_not_finite_are_named_and_counted(
    tmp_path: Path, state: dict[str, Tensor], refused: Run
) -> None:
    state["conv.weight"][70:72, 3] = float("nan")
    state["conv.weight"][9000, 1] = float("-inf")
    save_file(state, tmp_path / "bad.safetensors")
    assert "conv.weight holds 3 values that are not finite" in refused(tmp_path / "bad.safetensors")
    torch.save(state, tmp_path / "bad.pt")
    assert "conv.weight holds 3 values that are not finite" in refused(tmp_path / "bad.pt")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats(tmp_path: Path, state: dict[str, Tensor], refused: Run, dtype: torch.dtype) -> None:
    state["fc.weight"] = state["fc.weight"].to(dtype)
    source, out = tmp_path / "small.safetensors", tmp_path / "out.safetensors"
    save_file(state, source)
    told = refused(source)
    assert "fc.weight is F8_" in told
    assert "bfloat16" in told
    denoise_checkpoint(source, out, noise_variance=0.1, exclude=["fc.weight"])
    assert load_file(out)["fc.weight"].view(torch.uint8).equal(state["fc.weight"].view(torch.uint8))


def test_values_past_what_a_float_can_square(tmp_path: Path, refused: Run) -> None:
    huge = torch.tensor([[1e300, -1e300]], dtype=torch.float64)
    save_file({"a.weight": huge}, tmp_path / "big.safetensors")
    assert "both must be finite" in refused(tmp_path / "big.safetensors")


def test_a_missing_shard(sharded: Path, refused: Run) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    assert "names the shard model-00002-of-00003.safetensors, which is not in" in refused(sharded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable index"),
        ("[]", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"w": 3}}', "no weight_map"),
        ('{"weight_map": {"w": "../secret.safetensors"}}', "files beside the index"),
        ('{"weight_map": {"w": "config.json"}}', "files beside the index"),
        ('{"weight_map": {"w": "model-00001-of-00003.safetensors"}}', "puts 'w' into"),
    ],
)
def test_unsound_indices(sharded: Path, refused: Run, content: str, message: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    assert message in refused(sharded)


def test_one_tensor_in_two_shards(sharded: Path, state: dict[str, Tensor], refused: Run) -> None:
    second = sharded / "model-00002-of-00003.safetensors"
    save_file({**load_file(second), "scale": state["scale"]}, second)
    assert "'scale' is in" in refused(sharded)


def test_folders_without_a_model_or_with_two(tmp_path: Path, file: Path, refused: Run) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "readme.txt").write_text("nothing here")
    assert "there is no model in" in refused(folder)
    for name in ("one", "two"):
        (folder / f"{name}.safetensors").write_bytes(file.read_bytes())
    assert "several models (one.safetensors, two.safetensors)" in refused(folder)
    (folder / "model.safetensors").write_bytes(file.read_bytes())
    assert [shard.path.name for shard in find_shards(folder)] == ["model.safetensors"]


class Trap:
    """Would make a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["zip", "plain"])
def test_a_pickle_that_would_run_code_does_not(tmp_path: Path, refused: Run, kind: str) -> None:
    source = tmp_path / "trap.pt"
    content = {"w.weight": torch.ones(2, 2), "trap": Trap(tmp_path / "sprung")}
    if kind == "zip":
        torch.save(content, source)
    else:
        source.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    told = refused(source)
    assert "quietnn runs no code from files" in told or "not a whole PyTorch file" in told
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 no archive", struct.pack("<q", 3)])
def test_broken_torch_files(tmp_path: Path, refused: Run, content: bytes) -> None:
    (tmp_path / "bad.pt").write_bytes(content)
    told = refused(tmp_path / "bad.pt")
    assert "not a whole PyTorch file" in told or "quietnn runs no code" in told


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


def test_an_index_that_forgets_a_tensor(sharded: Path, refused: Run) -> None:
    index = sharded / "model.safetensors.index.json"
    fields = json.loads(index.read_text())
    del fields["weight_map"]["mask"]
    index.write_text(json.dumps(fields))
    assert "puts 'mask' into no shard" in refused(sharded)


def test_an_index_that_never_ends(sharded: Path, refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from quietnn.checkpoints import folder

    index = sharded / "model.safetensors.index.json"
    monkeypatch.setattr(folder, "_MAX_INDEX_BYTES", 10)
    assert "more than 10 bytes" in refused(sharded)
    for make in (lambda: os.mkfifo(index), lambda: index.symlink_to("/dev/zero")):
        index.unlink()
        make()
        assert "not a regular file" in refused(sharded)
