"""What the page says: the numbers of the records, what is missing, and what the run is."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.page.payload import analyse_inference, page_lead, page_payload, page_title
from quietnn.reports.runs import Run

Make = Callable[..., list[Record]]


def payload(*runs: Run, **options: int) -> dict[str, Any]:
    found = page_payload(runs, analyse_inference(runs, num_resamples=50), **options)
    json.dumps(found, allow_nan=False)
    return found


def run(records: list[Record], name: str = "digits", **config: Any) -> Run:
    return Run(name, Path("runs") / name, config, tuple(records))


def test_curves_hold_the_means_of_the_records(make_records: Make) -> None:
    records = make_records(num_draws=3)
    (task,) = payload(run(records))["tasks"]
    curve = next(curve for curve in task["curves"] if curve["method"] == "mmse_pb")
    wnr_db = curve["x"][2]
    measured = [r["accuracy"] for r in records if r["method"] == "mmse_pb" and r["wnr_db"] == wnr_db]
    assert curve["mean"][2] == pytest.approx(sum(measured) / 3, rel=1e-8)
    assert [row[2] for row in curve["draws"]] == pytest.approx(measured, rel=1e-8)
    assert task["curves"][curve["reference"]]["method"] == "ml"


def test_the_pole_and_the_choice_stand_beside_each_surface(make_records: Make) -> None:
    records = make_records(num_draws=1, wnrs=(-6.0,), methods=("ml", "mmse_pb"))
    (surface,) = payload(run(records))["tasks"][0]["surfaces"]
    searched = next(record for record in records if record["method"] == "mmse_pb")
    assert surface["pole"] == pytest.approx(1 + 10 ** (-0.6))
    assert surface["chosen"] == [searched["lambda_prime"], searched["beta"]]
    assert len(surface["trials"][0]) == len(searched["trials"])
    assert surface["trials"][2].count(None) == sum(trial[2] is None for trial in searched["trials"])


def test_layers_come_with_their_wnr_temperatures_and_pole(make_records: Make) -> None:
    records = make_records(num_draws=2, wnrs=(-6.0,), methods=("ml", "mmse_pb_layerwise"))
    records[-1]["group_wnr_db"]["stem"] = -math.inf
    (layers,) = payload(run(records))["tasks"][0]["layers"]
    assert layers["names"][:2] == ["stem", "block1.conv1"]
    assert layers["wnrs"][1][0] == "-inf"
    assert layers["poles"][0] == pytest.approx(1 + 10**-0.29, rel=1e-6)


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


def test_one_draw_and_a_curve_that_never_crosses_are_said(make_records: Make) -> None:
    (task,) = payload(run(make_records(num_draws=1, wnrs=(-12.0, -10.0), methods=("ml", "mmse_pb"))))["tasks"]
    assert "Every curve rests on one noise draw, so there is no band and no interval." in task["notices"]
    assert "ML never reaches 60 %." in task["sentences"]
    assert task["headline"] is None
    assert task["curves"][1]["gain"]["db"] is None


def test_a_run_without_records_yet_is_a_page_too() -> None:
    found = payload(run([]))
    assert found["title"] == "digits: no records yet"
    assert found["notices"] == ["digits holds no records yet."]
    assert found["tasks"] == found["results"] == []


def test_records_are_columns_and_lists_are_left_to_the_figures(make_records: Make) -> None:
    records = make_records(num_draws=2)
    (table,) = payload(run(records))["results"]
    columns = {column["name"]: column for column in table["columns"]}
    assert table["numRows"] == len(records)
    assert columns["wnr_db"]["numbers"][0] == "inf"
    assert columns["accuracy"]["numbers"][5] == pytest.approx(records[5]["accuracy"], rel=1e-8)
    method = columns["method"]
    assert [method["words"][code] for code in method["codes"]] == [record["method"] for record in records]
    assert not columns.keys() & {"trials", "group_temperatures", "experiment"}


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
        "6 ways to repair the weights, measured from −12 to 0 dB of weight-to-noise ratio with 2 noise draws."
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
    assert task["notices"] == [
        "ML gave up in one result, where the weights as they came stand in for it: no weights left"
    ]
    assert ["channel", "pcm"] in found["runs"][0]["facts"]
