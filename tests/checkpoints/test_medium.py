"""Checkpoints through media: the same as in memory, and told in the metadata."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import quietnn
from quietnn.channels.named import medium_named
from quietnn.cli.main import app


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
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


@pytest.mark.parametrize(
    "channel", ["quantise:num_bits=3", "pcm:seconds=3600", "fading:wnr_db=15,block=64", "digital:wnr_db=9"]
)
def test_a_file_holds_what_memory_would(channel: str, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "noisy.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(out), "--channel", channel, "--seed", "3"])
    assert run.exit_code == 0, run.output
    assert "effective WNR" in run.output
    expected = quietnn.transmit(load_file(checkpoint), channel=medium_named(channel), seed=3).received
    written = load_file(out)
    assert all(torch.equal(written[name], expected[name]) for name in expected)
    with safe_open(out, "pt") as file:
        text = json.dumps(file.metadata())
    assert channel in text
    assert "gain_by_tensor" in text


def test_one_kind_of_noise_at_a_time(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "noisy.safetensors"
    command = ["transmit", str(checkpoint), str(out), "--seed", "3", "--channel", "pcm:seconds=1", "--wnr-db", "3"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code != 0
    assert "exactly one" in str(run.exception)
    assert not out.exists()
