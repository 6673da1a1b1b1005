"""`inspect`, `transmit`, `denoise` and `tune` through the command line, on the network of the embedded digits."""

import json
import math
from importlib import resources
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import quietnn
from quietnn.cli.main import app
from quietnn.errors import InvalidConfig, MissingData
from quietnn.tasks.digits import digits_task

RUN = CliRunner()


def call(*arguments: object) -> str:
    """The output of a command that succeeds; its error if it does not."""
    result = RUN.invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    path = tmp_path / "clean.safetensors"
    path.write_bytes((resources.files("quietnn.tasks") / "data" / "digits-resnet.safetensors").read_bytes())
    return path


def accuracy(weights: Path) -> float:
    return float(json.loads(call("evaluate", "digits", "--weights", weights, "--json"))["accuracy"])


def test_transmit_inspect_denoise_evaluate(tmp_path: Path, clean: Path) -> None:
    noisy, estimate = tmp_path / "noisy.safetensors", tmp_path / "estimate.safetensors"
    told = call("transmit", clean, noisy, "--wnr-db", "10", "--seed", "4")
    model = digits_task().load_model()
    sent = quietnn.transmit(model, wnr_db=10.0, seed=4)
    assert f"{sent.noise_variance:.9g}" in told
    assert load_file(noisy)["conv1.weight"].equal(sent.received.state_dict()["conv1.weight"])

    seen = json.loads(call("inspect", noisy, "--noise-variance", sent.noise_variance, "--json"))
    assert seen["whole"]["wnr_db"] == pytest.approx(10.0, abs=0.3)
    assert sum(group["num_weights"] for group in seen["groups"]) == seen["whole"]["num_weights"]
    assert seen["history"][0]["noise_variance"] == sent.noise_variance

    call("denoise", noisy, estimate, "--noise-variance", sent.noise_variance, "--groups", "layerwise")
    expected = quietnn.denoise(sent.received, noise_variance=sent.noise_variance, groups="layerwise").model
    for name, tensor in load_file(estimate).items():
        assert tensor.equal(expected.state_dict()[name]), name
    assert accuracy(clean) > accuracy(estimate) > 0.5


def test_a_copy_without_noise_and_foreign_words_in_the_metadata_can_be_inspected(tmp_path: Path, clean: Path) -> None:
    copy, foreign = tmp_path / "copy.safetensors", tmp_path / "foreign.safetensors"
    quietnn.transmit_checkpoint(clean, copy, channel=quietnn.AWGN(wnr_db=math.inf), seed=1)
    (step,) = json.loads(call("inspect", copy, "--json"))["history"]
    assert (step["noise_variance"], step["wnr_db"]) == (0.0, None)
    save_file(load_file(clean), foreign, metadata={"quietnn": '[{"verb": "other", "number": NaN}]'})
    assert json.loads(call("inspect", foreign, "--json"))["history"] == [{"verb": "other", "number": None}]


def test_inspect_as_a_table_and_a_figure(tmp_path: Path, clean: Path) -> None:
    out = call("inspect", clean, "--figure", tmp_path / "weights.png")
    assert "whole model" in out
    assert "conv1" in out
    assert "untouched: " in out
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    call("inspect", clean, "--noise-variance", "0.001", "--figure", tmp_path / "weights.svg")
    assert b"<svg" in (tmp_path / "weights.svg").read_bytes()


@pytest.mark.parametrize("groups", ["whole", "layerwise"])
def test_tuned_temperatures_reach_the_denoiser(tmp_path: Path, clean: Path, groups: str) -> None:
    noisy, pairs, estimate = tmp_path / "noisy.safetensors", tmp_path / "t.json", tmp_path / "out.safetensors"
    call("transmit", clean, noisy, "--wnr-db", "0", "--seed", "1")
    variance = json.loads(call("inspect", noisy, "--json"))["history"][0]["noise_variance"]
    common = ("--weights", noisy, "--noise-variance", variance, "--num-examples", "40", "--out", pairs)
    call("tune", "digits", *common, "--groups", groups)
    call("denoise", noisy, estimate, "--temperatures", pairs)

    from quietnn.checkpoints.temperatures import read_temperatures

    model = digits_task(noisy).load_model()
    expected = quietnn.denoise(
        model, noise_variance=variance, groups=groups, temperatures=read_temperatures(pairs).temperatures
    ).model
    for name, tensor in load_file(estimate).items():
        assert tensor.equal(expected.state_dict()[name]), name
    with pytest.raises(InvalidConfig, match="there already"):
        call("tune", "digits", *common)


def test_what_is_noisy_is_said_before_anything_is_written(tmp_path: Path, clean: Path) -> None:
    result = RUN.invoke(app, ["denoise", str(clean), str(tmp_path / "no" / "out.safetensors"), "--wnr-db", "1"])
    assert isinstance(result.exception, MissingData)
    assert "noisy: " in result.stderr
    assert "untouched: " in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.safetensors"]


TUNE = ("tune", "digits", "--weights", "IN", "--noise-variance", "1", "--out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("denoise", "IN", "OUT"), "give exactly one"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--noise-variance", "1"), "give exactly one"),
        (("denoise", "IN", "OUT", "--wnr-db", "nan"), "nan dB"),
        (("denoise", "IN", "OUT", "--noise-variance", "-1"), "noise_variance is -1"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--method", "magic"), "no method 'magic'"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--method", "mmse_p"), "needs lambda_prime"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--method", "mmse_p", "--lambda-prime", "9"), r"outside \[0"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--groups", "odd"), "no grouping 'odd'"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--exclude", "nobody*"), "is called 'nobody"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--exclude", "*"), "no noisy tensor"),
        (("denoise", "IN", "OUT", "--wnr-db", "1", "--temperatures", "NONE"), "no temperatures file"),
        (("denoise", "IN", "IN", "--wnr-db", "1", "--overwrite"), "the input itself"),
        (("transmit", "IN", "OUT", "--seed", "1"), "give exactly one"),
        (("transmit", "IN", "OUT", "--seed", "-1", "--wnr-db", "1"), "seed is -1"),
        (("transmit", "IN", "OUT", "--seed", "1", "--wnr-db", "1", "--power", "x"), "power is 'x'"),
        (("inspect", "NONE"), "there is no"),
        (("inspect", "NONE", "--figure", "OUT"), "end in .png"),
        ((*TUNE, "OUT", "--groups", "x"), "groups is"),
        ((*TUNE, "OUT", "--seed", "-1"), "seed is -1"),
        ((*TUNE, "IN", "--overwrite"), "the input itself"),
        ((*TUNE, "FOLDER", "--overwrite"), "is a folder; give the name of a file"),
    ],
)
def test_wrong_requests_write_nothing(tmp_path: Path, clean: Path, arguments: tuple[str, ...], message: str) -> None:
    places = {"IN": clean, "OUT": tmp_path / "out.safetensors", "NONE": tmp_path / "none", "FOLDER": tmp_path}
    before = clean.read_bytes()
    with pytest.raises(quietnn.QuietnnError, match=message):
        call(*(places.get(argument, argument) for argument in arguments))
    assert clean.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.safetensors"]
