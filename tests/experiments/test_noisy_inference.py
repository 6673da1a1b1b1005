"""Noisy inference: what is tested, what is recorded, and channels other than white noise."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.experiments.config import load_config, shipped_configs
from quietnn.experiments.engines import key_of
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.repairs.base import REPAIRS, Repaired
from quietnn.score import Score
from quietnn.tasks.base import Examples
from quietnn.tasks.registry import load_task

CONFIGS = shipped_configs()
SMALL = NoisyInference("mini", "digits", (4.0, 8.0), ("ml", "mmse"), num_tuning_examples=20, num_test_examples=50)


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


def test_a_later_position_tests_on_other_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[set[bytes]] = []

    def watched(network: nn.Module, examples: Examples) -> Score:
        assert isinstance(examples.inputs, Tensor)
        tested.append({image.numpy().tobytes() for image in examples.inputs})
        return Score(1.0, 0.0, len(examples))

    task = replace(load_task("digits"), evaluate=watched)
    monkeypatch.setattr("quietnn.experiments.noisy_inference.load_task", lambda *_, **__: task)
    for first in (0, 20, 40):
        config = replace(SMALL, num_test_examples=20, first_test_position=first)
        list(config.worker().run(config.units()[0]))
    assert [len(found) for found in tested] == [20, 20, 20]
    assert len(set.union(*tested)) == 60


def test_a_task_that_cannot_begin_at_a_later_position_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("digits")
    mine = replace(task, test_examples=lambda num_examples: task.test_examples(num_examples))
    monkeypatch.setattr("quietnn.experiments.noisy_inference.load_task", lambda *_, **__: mine)
    with pytest.raises(InvalidConfig, match=r"first_test_position is 20.*test_examples\(num_examples, first=0\)"):
        replace(SMALL, first_test_position=20).worker()
    assert SMALL.worker()


def test_a_method_that_gives_up_is_recorded_with_the_score_of_what_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_up(observation: object, evidence: object, seed: int, settings: object) -> Repaired:
        raise InvalidWeights("what enters bn1 is not finite")

    monkeypatch.setitem(REPAIRS._rows, "posterior", replace(REPAIRS["posterior"], run=gives_up))
    config = NoisyInference("mini", "digits", (4.0,), ("ml", "posterior", "mmse"), num_draws=1, num_test_examples=50)
    found = {record["method"]: record for record in sweep(config, tmp_path, engine="inline")}
    assert found["posterior"]["failed"] == "what enters bn1 is not finite"
    assert found["posterior"]["accuracy"] == found["ml"]["accuracy"]
    assert "failed" not in found["ml"]
    assert "mmse" in found, "the sweep goes on"


def test_a_network_that_comes_back_bit_for_bit_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise every method returns the clean weights; ten thousand test images are then passed through once."""
    config = NoisyInference(
        name="none", task="digits", wnr_db=(math.inf, 0.0), num_draws=1, methods=("ml", "mmse"), num_test_examples=50
    )
    worker = config.worker()
    scored: list[nn.Module] = []
    evaluate = worker._task.evaluate

    def count(model: nn.Module, examples: Examples) -> Score:
        scored.append(model)
        return evaluate(model, examples)

    monkeypatch.setattr(worker, "_task", replace(worker._task, evaluate=count))
    found = [record for unit in config.units() for record in worker.run(unit)]
    assert [record["accuracy"] for record in found[:3]] == [found[0]["accuracy"]] * 3
    assert found[3]["loss"] != found[0]["loss"]
    assert found[4]["loss"] != found[3]["loss"]
    assert len(scored) == 3  # clean, and the two of the noisy draw


def test_a_network_that_computes_through_converters(tmp_path: Path) -> None:
    config = replace(channels("pcm", levels=(86400.0,)), methods=("ml", "calibrated"))
    noisy = replace(config, converter="7-9-bit-devices")
    assert noisy.digest != config.digest == replace(config, input_ranges="largest").digest
    exact, computed = (sweep(one, tmp_path / one.converter, engine="inline") for one in (config, noisy))
    assert computed[0]["loss"] == exact[0]["loss"]  # the clean network computes exactly
    assert [record["converter"] for record in computed] == ["7-9-bit-devices"] * 3
    for one, other in zip(exact[1:], computed[1:], strict=True):
        assert other["loss"] != one["loss"]
        assert other["assumed_noise_variance"] > one["assumed_noise_variance"]
    assert sweep(noisy, tmp_path / "again", engine="inline")[1]["loss"] == computed[1]["loss"]


@pytest.mark.parametrize("settings", [{"converter": "9-bit"}, {"input_ranges": "wide"}])
def test_an_unknown_converter_or_range_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="choose one of"):
        replace(SMALL, **settings)  # type: ignore[arg-type]


def test_a_method_with_a_teacher_has_its_own_number_of_inputs_and_records_it(tmp_path: Path) -> None:
    config = replace(SMALL, wnr_db=(4.0,), methods=("calibrated", "matched"), num_draws=1, num_taught_inputs=60)
    records = sweep(config, tmp_path, engine="inline")
    assert {record["method"]: record["num_tuning_examples"] for record in records[1:]} == {
        "calibrated": 20,
        "matched": 60,
    }
    assert records[2]["num_passes"] == 2
    assert config.digest != replace(config, num_taught_inputs=0).digest
    with pytest.raises(InvalidConfig, match="num_taught_inputs is -1"):
        replace(SMALL, num_taught_inputs=-1)
