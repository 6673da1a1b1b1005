"""Temperatures in a file: read back as written, refused when they do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.temperatures import TunedTemperatures, read_temperatures, write_temperatures
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.repairs.affine import Temperatures

FINITE = st.floats(allow_nan=False, allow_infinity=False)
PAIRS = st.dictionaries(st.text(max_size=5), st.builds(Temperatures, FINITE, FINITE), min_size=1, max_size=3)


@given(pairs=PAIRS, noise_variance=st.floats(0, 1e9))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, pairs: Any, noise_variance: float) -> None:
    tuned = TunedTemperatures("layerwise", pairs, noise_variance, {"task": "digits"})
    path = tmp_path_factory.mktemp("t") / "t.json"
    write_temperatures(path, tuned)
    assert read_temperatures(path) == tuned


GOOD: dict[str, Any] = {
    "format": "quietnn temperatures",
    "version": 1,
    "groups": "whole",
    "noise_variance": 0.01,
    "temperatures": {"whole": {"lambda_prime": 0.5, "beta": 0.0}},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, "not a temperatures file"),
        ({"version": 2}, "has version 2"),
        ({"groups": "odd"}, "groups 'odd'"),
        ({"temperatures": {}}, "no temperatures"),
        ({"temperatures": {"whole": {"lambda_prime": 1}}}, "needs lambda_prime and beta"),
        ({"temperatures": {"whole": {"lambda_prime": "1", "beta": 0}}}, "must be a finite number"),
        ({"temperatures": {"whole": {"lambda_prime": float("nan"), "beta": 0}}}, "must be a finite number"),
        ({"noise_variance": -1}, "noise_variance is -1"),
        ({"noise_variance": None}, "must be a finite number"),
        ({"noise_variance": 10**400}, "'1000.*' ?; it must be a finite number"),
        ({"temperatures": {"whole": {"lambda_prime": 10**400, "beta": 0}}}, "must be a finite number"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "t.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(QuietnnError, match=message):
        read_temperatures(tmp_path / "t.json")


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\x00"])
def test_text_that_is_no_such_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"not JSON|not a temperatures file"):
        read_temperatures(tmp_path / "t.json")


def test_groups_must_be_those_of_the_file(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "out.safetensors"
    tuned = TunedTemperatures("layerwise", {"conv": Temperatures(0.5), "head": Temperatures(0.5)}, 0.01)
    with pytest.raises(InvalidConfig, match="differ in 3 groups, the first is ''"):
        denoise_checkpoint(file, out, temperatures=tuned)
    with pytest.raises(InvalidConfig, match="leave groups out"):
        denoise_checkpoint(file, out, temperatures=tuned, groups="whole")
    with pytest.raises(InvalidConfig, match="take the place of a method, and method is 'ml'"):
        denoise_checkpoint(file, out, temperatures=tuned, method="ml")
    pairs = {"": Temperatures(0.0), "conv": Temperatures(0.5, 1.0), "fc": Temperatures(0.9)}
    done = denoise_checkpoint(file, out, temperatures=TunedTemperatures("layerwise", pairs, 0.01))
    assert done.noise_variance == 0.01
    assert done.denoisers.keys() == pairs.keys()
    past = TunedTemperatures("layerwise", pairs | {"fc": Temperatures(1e9)}, 0.01)
    with pytest.raises(QuietnnError, match=r"group 'fc': .* outside"):
        denoise_checkpoint(file, tmp_path / "none.safetensors", temperatures=past)
    assert not (tmp_path / "none.safetensors").exists()
