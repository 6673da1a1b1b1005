"""What the page shows of noisy inference: curves, surfaces and layers with the numbers of the records."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from quietnn.records import Record
from quietnn.reports.analysis import analyse_task
from quietnn.reports.page.tasks import task_payload

Make = Callable[..., list[Record]]


def payload(records: list[Record]) -> dict[str, Any]:
    found = task_payload(analyse_task("digits", records, 0.6, 50), most_trials=200_000)
    json.dumps(found, allow_nan=False)
    return found


def test_curves_hold_the_means_of_the_records(make_records: Make) -> None:
    records = make_records(num_draws=3)
    task = payload(records)
    curve = next(curve for curve in task["curves"] if curve["method"] == "mmse_pb")
    wnr_db = curve["x"][2]
    measured = [r["accuracy"] for r in records if r["method"] == "mmse_pb" and r["wnr_db"] == wnr_db]
    assert curve["mean"][2] == pytest.approx(sum(measured) / 3, rel=1e-8)
    assert [row[2] for row in curve["draws"]] == pytest.approx(measured, rel=1e-8)
    assert task["curves"][curve["reference"]]["method"] == "ml"


def test_the_pole_and_the_choice_stand_beside_each_surface(make_records: Make) -> None:
    records = make_records(num_draws=1, wnrs=(-6.0,), methods=("ml", "mmse_pb"))
    (surface,) = payload(records)["surfaces"]
    searched = next(record for record in records if record["method"] == "mmse_pb")
    assert surface["pole"] == pytest.approx(1 + 10 ** (-0.6))
    assert surface["chosen"] == [searched["lambda_prime"], searched["beta"]]
    assert len(surface["trials"][0]) == len(searched["trials"])
    assert surface["trials"][2].count(None) == sum(trial[2] is None for trial in searched["trials"])


def test_layers_come_with_their_wnr_temperatures_and_pole(make_records: Make) -> None:
    records = make_records(num_draws=2, wnrs=(-6.0,), methods=("ml", "mmse_pb_layerwise"))
    records[-1]["group_wnr_db"]["stem"] = -math.inf
    (layers,) = payload(records)["layers"]
    assert layers["names"][:2] == ["stem", "block1.conv1"]
    assert layers["wnrs"][1][0] == "-inf"
    assert layers["poles"][0] == pytest.approx(1 + 10**-0.29, rel=1e-6)


def test_one_draw_and_a_curve_that_never_crosses_are_said(make_records: Make) -> None:
    task = payload(make_records(num_draws=1, wnrs=(-12.0, -10.0), methods=("ml", "mmse_pb")))
    assert "Every curve rests on one noise draw, so there is no band and no interval." in task["notices"]
    assert "ML stays below 60 % up to -10 dB." in task["sentences"]
    assert task["headline"]["value"].count("→") == 1
    assert task["curves"][1]["gain"]["db"] is None
