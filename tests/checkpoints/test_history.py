"""What was done to a file: kept in order, read with suspicion, and of use to a receiver."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import Result
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import quietnn
from quietnn.channels.table import channel_named
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.header import read_header
from quietnn.checkpoints.history import history, with_step
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.transmit import transmit_checkpoint
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig

SENT = {"verb": "transmit", "tensors": ["conv.bias"]}


TOLD = {**SENT, "noise_variance_by_tensor": {"conv.bias": 0.1}, "gain_by_tensor": {"conv.bias": 0.5}}


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
    assert inspect_checkpoint(source).checkpoint.history == steps
    for options in (["--json"], []):
        run = CliRunner().invoke(app, ["inspect", str(source), *options])
        assert run.exit_code == 0, run.exception
    denoise_checkpoint(source, out, noise_variance=0.1)
    assert inspect_checkpoint(out).checkpoint.history[:-1] == steps
    json.dumps(inspect_checkpoint(out).checkpoint.history, allow_nan=False)


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


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
@pytest.mark.parametrize("channel", ["quantise:num_bits=3", "pcm:seconds=3600,compensate=false", "digital:wnr_db=6"])
def test_a_receiver_may_use_the_noise_that_was_recorded(
    channel: str, groups: str, checkpoint: Path, tmp_path: Path
) -> None:
    """As in memory: gain and offset undone, each tensor with its own noise."""
    noisy, out = tmp_path / "noisy.safetensors", tmp_path / "better.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(noisy), "--channel", channel, "--seed", "3"])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(app, ["denoise", str(noisy), str(out), "--recorded", "--groups", groups, "--threads", "3"])
    assert run.exit_code == 0, run.output
    clean = load_file(checkpoint)
    at_one = quietnn.transmit(clean, channel=channel_named(channel), seed=3).at_unit_gain()
    assert isinstance(at_one.noise_variance, dict)
    expected = quietnn.denoise(at_one.received, noise_variance=at_one.noise_variance, groups=groups).model
    written = load_file(out)
    assert all(torch.equal(written[name], expected[name]) for name in clean)
    errors = [
        sum(float((state[name].double() - clean[name].double()).square().sum()) for name in clean)
        for state in (written, at_one.received)
    ]
    assert errors[0] < errors[1]


def test_a_record_without_offsets_is_one_of_offset_zero(checkpoint: Path, tmp_path: Path) -> None:
    sent = load_file(checkpoint)
    written = []
    for told in ({}, {"offset_by_tensor": {"conv.bias": 0.0}}, {"offset_by_tensor": {"conv.bias": 0.25}}):
        noisy, out = tmp_path / "noisy.safetensors", tmp_path / "better.safetensors"
        save_file(sent, noisy, metadata={"quietnn": json.dumps([{**TOLD, **told}])})
        denoise_checkpoint(noisy, out, recorded=True, overwrite=True)
        written.append(load_file(out)["conv.bias"])
    assert torch.equal(written[0], written[1])
    assert torch.allclose(written[2], written[0] - 0.5, atol=1e-5)


def test_the_gaussian_channels_record_serves_too(checkpoint: Path, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.safetensors"
    run = CliRunner().invoke(app, ["transmit", str(checkpoint), str(noisy), "--noise-variance", "0.1", "--seed", "3"])
    assert run.exit_code == 0, run.output
    for name, option in (("a", ["--recorded"]), ("b", ["--noise-variance", "0.1"])):
        run = CliRunner().invoke(app, ["denoise", str(noisy), str(tmp_path / f"{name}.safetensors"), *option])
        assert run.exit_code == 0, run.output
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_only_what_met_the_noise_is_denoised(checkpoint: Path, tmp_path: Path) -> None:
    noisy, out = tmp_path / "noisy.safetensors", tmp_path / "better.safetensors"
    transmit_checkpoint(checkpoint, noisy, channel=quietnn.AWGN(noise_variance=0.5), seed=1, noisy=["conv.*"])
    denoise_checkpoint(noisy, out, recorded=True)
    sent, found = load_file(noisy), load_file(out)
    assert [name for name in sent if not sent[name].equal(found[name])] == ["conv.bias", "conv.weight"]
    denoise_checkpoint(noisy, out, recorded=True, exclude=["conv.bias"], overwrite=True)
    assert load_file(out)["conv.bias"].equal(sent["conv.bias"])
    with pytest.raises(InvalidConfig, match=r"records no noise on 'head.weight'"):
        denoise_checkpoint(noisy, out, recorded=True, noisy=["*.weight"], exclude=["bn.*"], overwrite=True)


def test_tied_tensors_are_recorded_by_all_their_names(tmp_path: Path) -> None:
    tied = torch.randn(5, 5)
    torch.save({"head.weight": tied, "embed.weight": tied}, tmp_path / "clean.pt")
    for channel in (["--noise-variance", "0.1"], ["--channel", "quantise:num_bits=4"]):
        command = ["transmit", str(tmp_path / "clean.pt"), str(tmp_path / "noisy.pt"), "--seed", "3", "--overwrite"]
        assert CliRunner().invoke(app, [*command, *channel]).exit_code == 0
        denoise_checkpoint(tmp_path / "noisy.pt", tmp_path / "out.pt", recorded=True, overwrite=True)
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert found["head.weight"].data_ptr() == found["embed.weight"].data_ptr()


@pytest.mark.parametrize("noise", [["--noise-variance", "0.5"], ["--channel", "fading:wnr_db=9"]], ids=str)
def test_the_same_noise_is_not_added_twice(checkpoint: Path, tmp_path: Path, noise: list[str]) -> None:
    once, twice = tmp_path / "once.safetensors", tmp_path / "twice.safetensors"

    def send(source: Path, out: Path, *options: str) -> Result:
        return CliRunner().invoke(app, ["transmit", str(source), str(out), *noise, *options])

    assert send(checkpoint, once, "--seed", "3", "--exclude", "head.*").exit_code == 0
    refused = send(once, twice, "--seed", "3")
    assert isinstance(refused.exception, InvalidConfig)
    assert "'conv.bias' met the noise of seed 3 before" in str(refused.exception)
    assert not twice.exists()
    assert send(once, twice, "--seed", "3", "--noisy", "head.*").exit_code == 0
    assert send(once, twice, "--seed", "4", "--overwrite").exit_code == 0


def test_the_history_tells_what_was_done(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "better.safetensors"
    options = {"noise_variance": 0.1, "method": "mmse_pb", "lambda_prime": 0.5, "beta": 0.1, "groups": "layerwise"}
    denoise_checkpoint(checkpoint, out, noisy=["conv.*"], **options)  # type: ignore[arg-type]
    told = inspect_checkpoint(out).checkpoint.history[-1]
    assert options.items() <= told.items()
    assert told["tensors"] == ["conv.bias", "conv.weight"]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (None, "records no transmission"),
        ([{"verb": "transmit", "noise_variance": 0.1}, {"verb": "denoise"}], "its last entry is 'denoise'"),
        ([{"verb": "transmit", "noise_variance": 0.1}], "does not record which tensors"),
        ([{"verb": "transmit", "tensors": [3], "noise_variance": 0.1}], "does not record which tensors"),
        (
            [{"verb": "transmit", "tensors": ["gone"], "noise_variance": 0.1}],
            "no floating point tensor is called 'gone'",
        ),
        ([{**SENT, "noise_variance": "much"}], "'much' as noise variance, which is no number"),
        ([{**SENT, "noise_variance": -1.0}], "variance"),
        ([{**SENT, "noise_variance": 0.1}, {**SENT, "noise_variance": 0.2}], "'conv.bias' met noise more than once"),
        ([{**SENT, "noise_variance": 10**400}], "as noise variance, which is no number"),
        ([{**SENT, "noise_variance_by_tensor": {}}], "records no noise variance of 'conv.bias'"),
        ([{**SENT, "noise_variance_by_tensor": 3}], "records no noise variance by tensor"),
        ([{**TOLD, "offset_by_tensor": {}}], "records no offset of 'conv.bias'"),
        ([{**TOLD, "offset_by_tensor": {"conv.bias": "some"}}], "'some' as offset of conv.bias, which is no number"),
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
