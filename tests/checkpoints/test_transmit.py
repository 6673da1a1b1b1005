"""Checkpoints through channels: the same as in memory, and told in the metadata."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import quietnn
from quietnn.channels.awgn import AWGN
from quietnn.channels.moments import effective_wnr_db
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.table import channel_named
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.history import history
from quietnn.checkpoints.opening import open_checkpoint
from quietnn.checkpoints.transmit import OnDisk, transmit_checkpoint, transmit_checkpoint_through
from quietnn.checkpoints.workers import Streaming
from quietnn.cli.main import app
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights

NOISY = ("scale", "conv.weight", "conv.bias", "fc.weight")


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


StateOf = Callable[..., dict[str, Tensor]]


NAMES = ("fc.weight", "scale", "conv.weight")


Same = Callable[[Tensor, Tensor], bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transmit_equals_the_library(tmp_path: Path, state_of: StateOf, dtype: torch.dtype, same_bits: Same) -> None:
    state = state_of(dtype, num_values=280_000)
    source, out = tmp_path / "w.safetensors", tmp_path / "r.safetensors"
    save_file(state, source)
    expected = quietnn.transmit(state, wnr_db=3.0, seed=5, noisy=NOISY)
    for chunk, threads in ((1, 2), (131_072, 1), (10_000_000, 2)):
        streaming = Streaming(num_threads=threads, chunk=chunk)
        variance = transmit_checkpoint(
            source, out, channel=AWGN(wnr_db=3.0), seed=5, overwrite=True, streaming=streaming
        )
        assert variance == expected.noise_variance
        found = load_file(out)
        assert all(same_bits(found[name], tensor) for name, tensor in expected.received.items())


def whole(state: dict[str, Tensor]) -> WeightStatistics:
    return WeightStatistics.from_clean([state[name] for name in NOISY])


def test_order_metadata_and_offsets_are_kept(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    from quietnn.checkpoints.header import read_header

    out = tmp_path / "out.safetensors"
    transmit_checkpoint(file, out, channel=AWGN(noise_variance=0.01), seed=3)
    before, after = read_header(file), read_header(out)
    assert list(before.entries.items()) == list(after.entries.items())
    assert after.data_start % 8 == 0
    with safe_open(out, framework="pt") as opened:
        metadata = opened.metadata()
    assert {"format": "pt", "note": "kept"}.items() <= metadata.items()
    assert history(metadata) == [
        {
            "version": quietnn.__version__,
            "verb": "transmit",
            "tensors": ["conv.bias", "conv.weight", "fc.weight", "scale"],
            "noise_variance": 0.01,
            "wnr_db": None,
            "power": "variance",
            "seed": 3,
            **{f"weight_{key}": getattr(whole(state), key) for key in ("mean", "variance")},
            "num_weights": whole(state).num_weights,
        }
    ]
    denoise_checkpoint(out, tmp_path / "again.safetensors", noise_variance=0.01)
    assert [step["verb"] for step in history(read_header(tmp_path / "again.safetensors").metadata)] == [
        "transmit",
        "denoise",
    ]


@pytest.mark.parametrize(
    "channel",
    [
        "quantise:num_bits=3",
        "quantise:num_bits=3,per_channel=true,dither=true",
        "truncate:num_bits=1",
        "pcm:seconds=3600",
        "reram:seconds=86400",
        "fading:wnr_db=15,block=64",
        "digital:wnr_db=9",
    ],
)
def test_a_file_holds_what_memory_would(channel: str, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "noisy.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(out), "--channel", channel, "--seed", "3"])
    assert run.exit_code == 0, run.output
    assert "effective WNR" in run.output
    expected = quietnn.transmit(load_file(checkpoint), channel=channel_named(channel), seed=3).received
    written = load_file(out)
    assert all(torch.equal(written[name], expected[name]) for name in expected)
    with safe_open(out, "pt") as file:
        text = json.dumps(file.metadata())
    assert channel in text
    assert "gain_by_tensor" in text
    assert "offset_by_tensor" in text


def test_one_kind_of_noise_at_a_time(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "noisy.safetensors"
    command = ["transmit", str(checkpoint), str(out), "--seed", "3", "--channel", "pcm:seconds=1", "--wnr-db", "3"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code != 0
    assert "exactly one" in str(run.exception)
    assert not out.exists()


@pytest.mark.parametrize("channel", ["quantise:num_bits=3", "pcm:seconds=3600", "fading:wnr_db=15,block=64"])
def test_threads_and_chunks_do_not_matter(channel: str, tmp_path: Path) -> None:
    """Also for channels that send each tensor by itself, twice: once for what is recorded, once for what is written."""
    generator = torch.Generator().manual_seed(0)
    source = tmp_path / "in.safetensors"
    save_file({f"{index}.weight": torch.randn(700, 300, generator=generator) for index in range(5)}, source)
    found = []
    for number, streaming in enumerate([Streaming(num_threads=1), Streaming(num_threads=5, chunk=65_536)]):
        out = tmp_path / f"{number}.safetensors"
        wnr_db = transmit_checkpoint_through(
            source, out, channel=channel_named(channel), description=channel, seed=3, streaming=streaming
        )
        found.append((wnr_db, out.read_bytes()))
    assert found[0] == found[1]
    observation = quietnn.transmit(load_file(source), channel=channel_named(channel), seed=3)
    expected = effective_wnr_db(load_file(source), observation.noise_variance)
    assert found[0][0] == pytest.approx(expected, abs=1e-9)


def test_quantisers_hold_a_few_tensors_at_a_time(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    quantise = Quantisation.transmit

    def count(self: Quantisation, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        sent.append(len(weights))
        return quantise(self, weights, seed=seed)

    monkeypatch.setattr(Quantisation, "transmit", count)
    transmit_checkpoint_through(
        checkpoint, tmp_path / "out.safetensors", channel=Quantisation(3), description="quantise:num_bits=3", seed=0
    )
    assert sent == [1] * 6  # three noisy tensors, each once for the record and once for the file


@pytest.mark.parametrize("kind", ["file", "sharded", "torch"])
def test_it_is_a_mapping(kind: str, state: dict[str, Tensor], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torch.save(state, tmp_path / "model.pt")
    path = tmp_path / "model.pt" if kind == "torch" else request.getfixturevalue(kind)
    weights = OnDisk(open_checkpoint(path), NAMES, on_progress=lambda num_bytes: None)
    assert tuple(weights) == NAMES
    assert len(weights) == len(NAMES)
    for name, tensor in weights.items():
        assert tensor.dtype == state[name].dtype
        assert tensor.shape == state[name].shape
        assert torch.equal(tensor, state[name])


def test_only_what_was_named_is_in_it_and_looking_reads_nothing(file: Path) -> None:
    read: list[int] = []
    weights = OnDisk(open_checkpoint(file), NAMES, on_progress=read.append)
    assert "scale" in weights
    assert "conv.bias" not in weights
    with pytest.raises(KeyError):
        weights["conv.bias"]
    assert read == []
    assert weights["fc.weight"].nbytes == read[0]
