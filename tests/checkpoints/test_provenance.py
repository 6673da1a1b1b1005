"""What was done to a file: kept in order, and read with suspicion."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.header import read_header
from quietnn.checkpoints.history import history, with_step
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.cli.main import app


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("[1e999, NaN, -Infinity]", [None, None, None]),
        ("[" * 700 + "]" * 700, ["[" * 700 + "]" * 700]),
        ("[" * 100_000, ["[" * 100_000]),
        ('{"verb": "other"}', [{"verb": "other"}]),
        (f"[{10**400}]", [10**400]),
        ("9" * 5000, ["9" * 5000]),
        ("no JSON", ["no JSON"]),
    ],
    ids=range(7),
)
def test_histories_of_strangers(tmp_path: Path, text: str, steps: list[object]) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"a.weight": torch.randn(3, 3)}, source, metadata={"quietnn": text})
    assert inspect_checkpoint(source).history == steps
    for options in (["--json"], []):
        run = CliRunner().invoke(app, ["inspect", str(source), *options])
        assert run.exit_code == 0, run.exception
    denoise_checkpoint(source, out, noise_variance=0.1)
    assert inspect_checkpoint(out).history[:-1] == steps
    json.dumps(inspect_checkpoint(out).history, allow_nan=False)


@pytest.mark.parametrize("metadata", [None, {}, {"note": "kept"}, {"format": "pt"}], ids=str)
def test_loaders_find_a_format(metadata: dict[str, str] | None) -> None:
    written = with_step(metadata, {"verb": "denoise", "wnr_db": float("inf")})
    assert written["format"] == "pt"
    assert written.items() >= (metadata or {}).items()
    assert history(written)[0]["wnr_db"] is None


def test_another_format_stays(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"a.weight": torch.randn(3, 3)}, source, metadata={"format": "mlx"})
    denoise_checkpoint(source, out, noise_variance=0.1)
    assert (read_header(out).metadata or {})["format"] == "mlx"
