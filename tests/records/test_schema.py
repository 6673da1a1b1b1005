"""What a record must hold: a field that does not fit is named, in memory and in a file."""

import json
import math
from pathlib import Path

import pytest

from quietnn import records
from quietnn.errors import InvalidConfig
from quietnn.records.schema import config_problem, problem

RESULTS = Path(__file__).parents[2] / "results"

RESULT = {"experiment": "noisy_inference", "method": "ml", "wnr_db": 3.0, "draw": 0, "accuracy": 0.5}
RUN = RESULT | {"experiment": "noisy_training", "status": "finished"}


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (RESULT | {"accuracy": 1.5}, "accuracy is 1.5; it must be a number from 0 to 1"),
        (RESULT | {"wnr_db": 1e308}, "wnr_db is 1e\\+308"),
        (RESULT | {"draw": 0.5}, "draw is 0.5"),
        (RESULT | {"seed": 10**30}, "'seed' holds a whole number of more than 64 bits"),
        (RESULT | {"trials": [[0.5]]}, "trials is .* it must be a list of .lambda', beta, accuracy."),
        (RESULT | {"group_temperatures": {"a": 3}}, "group_temperatures is"),
        (RESULT | {"task": ["x"]}, "task is .*; it must be text"),
        (RESULT | {"note": [[[[[[1]]]]]]}, "'note' holds more than 4 lists inside each other"),
        (RESULT | {"experiment": 3}, "experiment is 3"),
        ({"experiment": "noisy_inference"}, "method is missing"),
        (RUN | {"tested_rounds": [1, 2], "round_accuracy": [0.1]}, "tested_rounds has 2 entries and round_accuracy 1"),
        (RUN | {"accuracy": None}, "accuracy is missing, and status is not 'diverged'"),
        ({"experiment": "theory", "kind": "point", "figure": 3}, "name is missing"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_file_and_line(
    tmp_path: Path, record: records.Record, field: str
) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [RESULT, record])
    with pytest.raises(InvalidConfig, match=f"records.jsonl, line 2 is not a record .{field}"):
        records.read(path)


def test_unknown_fields_pass_and_a_task_may_have_a_score_of_its_own() -> None:
    assert problem(RESULT | {"new field": [1, {"a": None}]}) == ""
    assert problem(RESULT | {"accuracy": None, "score": 12.5}) == ""
    assert problem({"method": "clean", "wnr_db": float("inf"), "accuracy": 0.9}) == ""


def test_another_version_is_named_where_a_field_does_not_fit() -> None:
    assert problem(RESULT | {"draw": "0", "version": "0.0.1"}).endswith("; quietnn '0.0.1' wrote it and this is 0.1.0")


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("config.json")), ids=lambda path: path.parent.name)
def test_the_stored_configurations_are_sound(path: Path) -> None:
    assert config_problem(json.loads(path.read_text(encoding="utf-8"))) == ""


def test_a_noiseless_channel_is_a_level() -> None:
    assert config_problem({"wnr_db": [math.inf, 30.0]}) == config_problem({"wnr_db": ["inf"]}) == ""
    assert "wnr_db is [nan]" in config_problem({"wnr_db": [math.nan]})
