"""Noisy training on the page."""

import math
from collections.abc import Iterator

import pytest

from quietnn.records import Record
from quietnn.reports.page.payload import page_title
from quietnn.reports.page.training import training_payload
from quietnn.reports.runs import Run


def training_records(num_seeds: int = 2) -> Iterator[Record]:
    for method, gain in (("ml", 0.0), ("mmse_pb", 0.1)):
        for wnr_db in (-10.0, 0.0, math.inf):
            for seed in range(num_seeds):
                for number in range(3):
                    accuracy = 0.3 + 0.1 * number + gain + 0.02 * seed
                    yield {"experiment": "noisy_training", "task": "digits", "method": method, "wnr_db": wnr_db,
                           "seed": seed, "round": number, "accuracy": accuracy, "run": "fl"}  # fmt: skip


def test_rounds_are_means_over_seeds() -> None:
    (task,) = training_payload(list(training_records()))
    series = next(one for one in task["series"] if one["label"] == "MMSE_pb" and one["wnr"] == 0)
    assert series["x"] == [0, 1, 2]
    assert series["mean"] == pytest.approx([0.41, 0.51, 0.61])
    assert series["std"] == pytest.approx([math.sqrt(2) / 100] * 3)
    assert {one["wnr"] for one in task["series"]} == {-10, 0, "inf"}


def test_one_seed_has_no_band_and_the_page_says_so() -> None:
    (task,) = training_payload(list(training_records(num_seeds=1)))
    assert task["notices"] == ["One seed only, so there is no band."]
    assert {value for one in task["series"] for value in one["std"]} == {None}


def test_the_title_says_training() -> None:
    from pathlib import Path

    run = Run("fl", Path(), {}, tuple(training_records()))
    assert page_title([run]) == "Handwritten digits, trained over a noisy channel"
