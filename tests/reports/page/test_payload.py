"""What the page says: the numbers of the records, what is missing, and what the run is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.analysis import analyse_runs
from quietnn.reports.page.payload import page_lead, page_payload, page_title
from quietnn.reports.runs import Run

Make = Callable[..., list[Record]]


def payload(*runs: Run, **options: int) -> dict[str, Any]:
    found = page_payload(analyse_runs(runs, num_resamples=50), **options)
    json.dumps(found, allow_nan=False)
    return found


def run(records: list[Record], name: str = "digits", **config: Any) -> Run:
    return Run(name, Path("runs") / name, config, tuple(records))


def test_what_is_missing_is_said(make_records: Make) -> None:
    records = [r for r in make_records(num_draws=2) if not (r["method"] == "mmse" and r["wnr_db"] == -12.0)]
    records = [r for r in records if not (r["method"] == "mmse_p" and r["wnr_db"] == -10.0 and r["draw"] == 1)]
    config = {"wnr_db": [-12.0, -10.0], "methods": ["ml", "mmse", "posterior"], "num_draws": 2}
    found = payload(run(records, **config))
    assert found["notices"] == ["digits: 6 of 13 planned results are not there yet: MMSE (2), Posterior (4)."]
    assert found["tasks"][0]["notices"] == [
        "MMSE was not measured at -12 dB.",
        "MMSE_p has only 1 of 2 draws at some WNRs.",
    ]


def test_a_run_without_records_yet_is_a_page_too() -> None:
    found = payload(run([]))
    assert found["title"] == "digits: no records yet"
    assert found["notices"] == ["digits holds no records yet."]
    assert found["tasks"] == found["results"] == []


def test_other_experiments_are_in_the_table_and_said_to_have_no_chart() -> None:
    found = payload(run([{"experiment": "gaussianity", "task": "cifar10/resnet20", "layer": "fc", "distance": 0.1}]))
    assert found["title"] == "ResNet20 on CIFAR-10: gaussianity"
    assert found["notices"] == ["Records of gaussianity have no chart here; they are in the table of results."]
    assert [column["name"] for column in found["results"][0]["columns"]] == ["run", "task", "layer", "distance"]


def test_two_runs_of_one_name_are_told_apart(make_records: Make) -> None:
    records = make_records(num_draws=1, methods=("ml",), with_trials=False)
    first, second = run(records), Run("digits", Path("elsewhere"), {}, tuple(records))
    names = [one["name"] for one in payload(first, second)["runs"]]
    assert names == ["digits in runs/digits", "digits in elsewhere"]


def test_a_broken_record_in_memory_is_named(make_records: Make) -> None:
    records = make_records(num_draws=1, methods=("ml",))
    records[2]["accuracy"] = 61
    with pytest.raises(InvalidConfig, match="record 3: accuracy is 61; it must be a number from 0 to 1"):
        payload(run(records))


def test_the_title_and_the_lead_say_what_the_run_is(make_records: Make) -> None:
    records = make_records(task="cifar10/resnet20", num_draws=2)
    assert page_title([run(records)]) == "ResNet20 on CIFAR-10 under weight noise"
    assert page_lead(records) == (
        "5 ways to repair the weights, measured from −12 to 0 dB of weight-to-noise ratio with 2 noise draws."
    )
    assert page_title([run([{"experiment": "theory", "kind": "check"}])]).startswith("Denoising theory")


def test_a_channel_set_by_bits_is_drawn_at_the_mean_wnr_of_each_level(make_records: Make) -> None:
    records = make_records(num_draws=2, wnrs=(-6.0, -4.0), methods=("ml", "mmse_pb"))
    for record in records[1:]:
        record |= {"channel": "pcm", "level": record["wnr_db"] + 10, "wnr_db": record["wnr_db"] + 0.3 * record["draw"]}
    records[1]["failed"] = "no weights left"
    config = {"wnr_db": [], "levels": [4.0, 6.0], "methods": ["ml", "mmse_pb"], "num_draws": 2}
    found = payload(run(records, **config))
    (task,) = found["tasks"]
    assert [curve["x"] for curve in task["curves"]] == [[-5.85, -3.85]] * 2
    assert [curve["count"] for curve in task["curves"]] == [[2, 2]] * 2
    assert found["notices"] == []
    assert task["notices"] == ["ML gave up in one result, where the received weights stand in for it: no weights left"]
    assert ["channel", "pcm"] in found["runs"][0]["facts"]


@pytest.mark.parametrize(("seconds", "told"), [(75.0, "75 s"), (600.0, "10 min"), (7260.0, "2.0 h")])
def test_computing_time_is_said_in_the_units_that_matter(seconds: float, told: str) -> None:
    (one,) = payload(run([{"method": "ml", "wnr_db": 0.0, "draw": 0, "accuracy": 0.5, "seconds": seconds}]))["runs"]
    assert ["computing time", told] in one["facts"]
