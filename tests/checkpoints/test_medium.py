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


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
@pytest.mark.parametrize("channel", ["quantise:num_bits=3", "pcm:seconds=3600,compensate=false"])
def test_a_receiver_may_use_the_noise_that_was_recorded(
    channel: str, groups: str, checkpoint: Path, tmp_path: Path
) -> None:
    """As in memory: the gain undone, each tensor with its own noise."""
    noisy, out = tmp_path / "noisy.safetensors", tmp_path / "better.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(noisy), "--channel", channel, "--seed", "3"])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(app, ["denoise", str(noisy), str(out), "--recorded", "--groups", groups, "--threads", "3"])
    assert run.exit_code == 0, run.output
    clean = load_file(checkpoint)
    at_one = quietnn.at_unit_gain(quietnn.transmit(clean, channel=medium_named(channel), seed=3))
    assert isinstance(at_one.noise_variance, dict)
    expected = quietnn.denoise(at_one.received, noise_variance=at_one.noise_variance, groups=groups)
    written = load_file(out)
    assert all(torch.equal(written[name], expected[name]) for name in clean)
    errors = [
        sum(float((state[name].double() - clean[name].double()).square().sum()) for name in clean)
        for state in (written, at_one.received)
    ]
    assert errors[0] < errors[1]


def test_the_gaussian_channels_record_serves_too(checkpoint: Path, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(noisy), "--noise-variance", "0.1", "--seed", "3"])
    assert run.exit_code == 0, run.output
    for name, option in (("a", ["--recorded"]), ("b", ["--noise-variance", "0.1"])):
        run = CliRunner().invoke(app, ["denoise", str(noisy), str(tmp_path / f"{name}.safetensors"), *option])
        assert run.exit_code == 0, run.output
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (None, "records no transmission"),
        ([{"verb": "transmit", "noise_variance": 0.1}, {"verb": "denoise"}], "its last entry is 'denoise'"),
        ([{"verb": "transmit", "noise_variance": "much"}], "'much' as noise variance, which is no number"),
        ([{"verb": "transmit", "noise_variance": -1.0}], "variance"),
        ([{"verb": "transmit", "noise_variance_by_tensor": {}}], "records no noise variance of 'conv.bias'"),
        ([{"verb": "transmit", "noise_variance_by_tensor": 3}], "records no noise variance by tensor"),
    ],
    ids=str,
)
def test_a_record_that_does_not_serve(history: object, message: str, checkpoint: Path, tmp_path: Path) -> None:
    noisy, out = tmp_path / "noisy.safetensors", tmp_path / "better.safetensors"
    save_file(load_file(checkpoint), noisy, metadata={"quietnn": json.dumps(history)} if history else None)
    run = CliRunner().invoke(app, ["denoise", str(noisy), str(out), "--recorded"])
    assert isinstance(run.exception, quietnn.QuietnnError)
    assert message in str(run.exception)
    assert not out.exists()


def test_one_kind_of_noise_at_a_time(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "noisy.safetensors"
    command = ["transmit", str(checkpoint), str(out), "--seed", "3", "--channel", "pcm:seconds=1", "--wnr-db", "3"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code != 0
    assert "exactly one" in str(run.exception)
    assert not out.exists()
