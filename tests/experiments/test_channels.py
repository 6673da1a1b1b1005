"""Sweeps over channels other than white noise."""

import math
import tomllib
from pathlib import Path

import pytest

from quietnn.errors import InvalidConfig
from quietnn.experiments.config import load_config, shipped_configs
from quietnn.experiments.engines import key_of
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep

CONFIGS = shipped_configs()


def channels(channel: str, *, levels: tuple[float, ...] = (), wnr_db: tuple[float, ...] = ()) -> NoisyInference:
    return NoisyInference(
        name="channels",
        task="digits",
        wnr_db=wnr_db,
        levels=levels,
        methods=("ml", "mmse"),
        num_draws=1,
        num_tuning_examples=20,
        num_test_examples=100,
        channel=channel,
    )


def test_bits_are_swept_and_the_wnr_they_amount_to_is_recorded(tmp_path: Path) -> None:
    config = channels("quantise", levels=(2.0, 8.0))
    records = sweep(config, tmp_path, engine="inline")
    assert [key_of(record) for record in records] == [
        (math.inf, 0, "clean"),
        *((level, 0, method) for level in (2.0, 8.0) for method in ("ml", "mmse")),
    ]
    by_level = {record["level"]: record for record in records if record["method"] == "ml"}
    assert by_level[8.0]["wnr_db"] > by_level[2.0]["wnr_db"] + 25
    assert by_level[8.0]["accuracy"] == records[0]["accuracy"]
    assert {record["channel"] for record in records} == {"quantise"}
    assert sweep(config, tmp_path, engine="inline") == records  # nothing is missing, nothing is done again


def test_a_radio_link_is_swept_by_its_wnr(tmp_path: Path) -> None:
    records = sweep(channels("fading:block=64", wnr_db=(20.0,)), tmp_path, engine="inline")
    assert [record["wnr_db"] for record in records] == [math.inf, 20.0, 20.0]
    assert [record["level"] for record in records] == [math.inf, 20.0, 20.0]
    assert records[1]["noise_variance"] == records[2]["noise_variance"] > 0
    assert "rate" not in records[0]
    assert (
        1.125 < records[1]["rate"] < 1.2
    )  # eight pilots for every 64 symbols, a little more where blocks are not full


def test_a_run_of_white_noise_is_the_run_it_was_before_there_were_channels() -> None:
    config = load_config(NoisyInference, CONFIGS["digits"])
    assert config.digest == "90010a074cc6"
    assert "level" not in next(iter(config.run()))


@pytest.mark.parametrize(
    ("channel", "levels", "wnr_db", "word"),
    [
        ("quantise", (), (3.0,), "levels"),
        ("quantise", (4.0,), (3.0,), "set by num_bits"),
        ("fading", (4.0,), (3.0,), "leave levels out"),
        ("quantise", (4.5,), (), "whole number"),
        ("pcm:second=1", (1.0,), (), "seconds"),
        ("telepathy", (1.0,), (), "awgn"),
    ],
)
def test_what_could_not_run_is_refused_at_once(
    channel: str, levels: tuple[float, ...], wnr_db: tuple[float, ...], word: str
) -> None:
    with pytest.raises(InvalidConfig, match=word):
        channels(channel, levels=levels, wnr_db=wnr_db)


PRESETS = [
    (path, preset)
    for path in (path for name, path in CONFIGS.items() if name.startswith("media-"))
    for preset in (None, *tomllib.loads(path.read_text())["presets"])
]


@pytest.mark.parametrize(("path", "preset"), PRESETS, ids=lambda part: getattr(part, "stem", part))
def test_the_ready_made_configurations_are_sound(path: Path, preset: str | None) -> None:
    assert load_config(NoisyInference, path, preset=preset).units()
