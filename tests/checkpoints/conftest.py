"""Small checkpoints of every kind."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from quietnn.cli.main import main

MakeFile = Callable[..., Path]


def make_state(dtype: torch.dtype = torch.float32, *, num_values: int = 70_000) -> dict[str, Tensor]:
    """A matrix past one block of noise, a bias, a normalisation layer, a counter, a scalar and an empty tensor."""
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * 0.3 + 0.05).to(dtype)

    return {
        "scale": draw(),
        "conv.weight": draw(num_values // 7, 7),
        "conv.bias": draw(13),
        "bn.weight": draw(13),
        "bn.bias": draw(13),
        "bn.running_mean": draw(13),
        "bn.num_batches_tracked": torch.tensor(3),
        "fc.weight": draw(11, 5),
        "fc.nothing": torch.empty(0, 4, dtype=dtype),
        "mask": torch.tensor([True, False, True]),
    }


@pytest.fixture
def state() -> dict[str, Tensor]:
    """A float32 state dict."""
    return make_state()


@pytest.fixture
def state_of() -> Callable[..., dict[str, Tensor]]:
    """State dicts of other dtypes and sizes."""
    return make_state


@pytest.fixture
def file(tmp_path: Path, state: dict[str, Tensor]) -> Path:
    """The state dict as a safetensors file with metadata."""
    path = tmp_path / "noisy.safetensors"
    save_file(state, path, metadata={"format": "pt", "note": "kept"})
    return path


@pytest.fixture
def sharded(tmp_path: Path, state: dict[str, Tensor]) -> Path:
    """The state dict in three shards with an index, and other files; layer `conv` spans two shards."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    names = list(state)
    parts = [names[:2], names[2:6], names[6:]]
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        shard = f"model-{number:05d}-of-00003.safetensors"
        save_file({name: state[name] for name in part}, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, shard)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "notes.txt").write_text("hello")
    return folder


@pytest.fixture
def raw_file(tmp_path: Path) -> Callable[[Any, bytes], Path]:
    """Writes a safetensors file with any header."""

    def write(header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "raw.safetensors"
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    return write


@pytest.fixture
def leftovers(tmp_path: Path) -> Callable[[], list[str]]:
    """Names of hidden files that an unfinished output left behind."""
    return lambda: [path.name for path in tmp_path.rglob(".*")]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], str]:
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


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A clean file of two layers and a normalisation, in two dtypes."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "conv.weight": torch.randn(64, 40, 3, 3, generator=generator),
        "conv.bias": torch.randn(64, generator=generator),
        "bn.weight": torch.ones(64),
        "bn.running_mean": torch.zeros(64),
        "head.weight": torch.randn(10, 64, generator=generator).half(),
    }
    path = tmp_path / "clean.safetensors"
    save_file(state, path)
    return path
