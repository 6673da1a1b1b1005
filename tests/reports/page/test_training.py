"""Noisy training on the page."""

import math
from pathlib import Path
from typing import Any

import pytest

from quietnn.records import Record
from quietnn.reports.analysis import training_analyses
from quietnn.reports.page.payload import page_lead, page_title
from quietnn.reports.page.tasks import training_payload
from quietnn.reports.runs import Run, missing_sentence


def federation(method: str, wnr_db: float, draw: int, end: float) -> Record:
    """One finished federation of three rounds, as `quietnn federate` records it."""
    record: Record = {"experiment": "noisy_training", "run": "fl", "task": "digits", "method": method, "wnr_db": wnr_db}
    record |= {"draw": draw, "seed": draw, "accuracy": end, "num_rounds": 3, "status": "finished", "seconds": 2.0}
    return record | {"tested_rounds": [1, 2, 3], "round_accuracy": [end - 0.2, end - 0.1, end]}


def training_records(num_draws: int = 2) -> list[Record]:
    """ML falls below 80 % at -2 dB, MMSE_pb at -6 dB."""
    found = [federation("clean", math.inf, draw, 0.92) for draw in range(num_draws)]
    ends = {"ml": (0.4, 0.7, 0.9), "mmse_pb": (0.7, 0.9, 0.91)}
    for method, accuracies in ends.items():
        for wnr_db, end in zip((-8.0, -4.0, 0.0), accuracies, strict=True):
            found += [federation(method, wnr_db, draw, end + 0.02 * draw - 0.01) for draw in range(num_draws)]
    return found


def payload(records: list[Record]) -> dict[str, Any]:
    (task,) = map(training_payload, training_analyses(records, num_resamples=50))
    return task


def test_rounds_are_means_over_seeds() -> None:
    task = payload(training_records())
    series = next(one for one in task["series"] if one["label"] == "MMSE_pb" and one["wnr"] == -4)
    assert series["x"] == [1, 2, 3]
    assert series["mean"] == pytest.approx([0.7, 0.8, 0.9])
    assert series["std"] == pytest.approx([math.sqrt(2) / 100] * 3)
    assert next(one for one in task["series"] if one["wnr"] == "inf")["label"] == "no noise"


def test_the_trained_networks_are_compared_as_in_noisy_inference() -> None:
    task = payload(training_records())
    assert task["clean"] == [pytest.approx(0.92), 0]
    assert task["level"] == 0.8
    assert task["headline"]["value"] == "+4.0 dB"
    assert task["lead"] == "2 schemes, 2 seeds, 3 rounds."


def test_a_diverged_run_counts_as_chance_and_is_said() -> None:
    records = training_records()
    records[2] |= {"accuracy": None, "status": "diverged", "diverged_round": 2}
    records[2] |= {"tested_rounds": [1], "round_accuracy": [0.1]}
    task = payload(records)
    assert "ML at -8 dB, draw 0, diverged in round 2; it counts as 10 %." in task["notices"]
    ml = next(curve for curve in task["curves"] if curve["method"] == "ml")
    assert ml["mean"][0] == pytest.approx((0.1 + 0.41) / 2)


def test_one_draw_has_no_band_and_the_page_says_so() -> None:
    task = payload(training_records(num_draws=1))
    assert any("rests on one noise draw" in line for line in task["notices"])
    assert {value for one in task["series"] for value in one["std"]} == {None}


def test_the_title_says_training_and_the_plan_counts_candidates() -> None:
    config = {"wnr_db": [-8.0, -4.0, 0.0], "methods": ["ml", "mmse_pb", "mmse_pb_fixed"], "num_draws": 2}
    config |= {"num_rounds": 3, "fixed": ["1 0", "0.5 0"]}
    records = training_records()
    records.append({**federation("1 0", -8.0, -1, 0.5), "experiment": "noisy_training_selection"})
    run = Run("fl", Path(), config, tuple(records))
    assert page_title([run]) == "Handwritten digits, trained over a noisy channel"
    assert page_lead(records) == "Federated training over the air: 2 schemes, 3 rounds, 2 seeds."
    assert missing_sentence(run) == (
        "fl: 11 of 26 planned results are not there yet: MMSE_pb fixed (6), candidates for fixed temperatures (5)."
    )
