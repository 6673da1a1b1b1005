"""Records to curves."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.curves import at_mean_wnr, clean_merit, curves

Make = Callable[..., list[Record]]


def result(method: str = "ml", wnr_db: float = 0.0, draw: int = 0, accuracy: float = 0.5, **more: object) -> Record:
    return {"method": method, "wnr_db": wnr_db, "draw": draw, "accuracy": accuracy, **more}


def test_mean_and_std_are_those_of_the_draws() -> None:
    (curve,) = curves([result(draw=draw, accuracy=accuracy) for draw, accuracy in enumerate((0.2, 0.4, 0.9))])
    assert curve.mean == pytest.approx([0.5])
    assert curve.std == pytest.approx([np.std([0.2, 0.4, 0.9], ddof=1)])
    assert curve.num_draws == 3


def test_a_missing_cell_is_nan_and_the_rest_still_counts() -> None:
    found = [result(wnr_db=-2.0, draw=0, accuracy=0.3), result(wnr_db=0.0, draw=0), result(wnr_db=0.0, draw=1)]
    (curve,) = curves(found)
    assert curve.wnr_db.tolist() == [-2.0, 0.0]
    assert np.isnan(curve.merits).tolist() == [[False, False], [True, False]]
    assert curve.counts.tolist() == [1, 2]
    assert curve.mean == pytest.approx([0.3, 0.5])
    assert np.isnan(curve.std).tolist() == [True, False]


def test_the_order_of_records_does_not_matter(make_records: Make) -> None:
    found = make_records(num_draws=2, with_trials=False)
    forwards, backwards = curves(found), curves(found[::-1])
    assert [curve.label for curve in forwards] == [curve.label for curve in backwards]
    for one, other in zip(forwards, backwards, strict=True):
        np.testing.assert_array_equal(one.merits, other.merits)


def test_clean_and_noiseless_results_are_no_part_of_a_curve() -> None:
    found = [result("clean", math.inf, accuracy=0.9, num_test_examples=50), result("ml", math.inf), result("ml", 1.0)]
    (curve,) = curves(found)
    assert curve.wnr_db.tolist() == [1.0]
    assert clean_merit(found) == (0.9, 50)
    assert clean_merit(found[1:]) is None


def test_tuning_sizes_and_runs_are_told_apart_only_where_they_differ() -> None:
    found = [
        result("mmse_pb", num_tuning_examples=size, run=run, accuracy=size / 1000)
        for size, run in ((10, "a"), (40, "b"))
    ]
    found += [result("mmse", accuracy=0.1, run="a"), result("mmse", accuracy=0.2, run="b")]
    labels = [curve.label for curve in curves(found)]
    assert labels == ["MMSE (a)", "MMSE (b)", "MMSE_pb (κ = 10)", "MMSE_pb (κ = 40)"]


def test_ml_repeated_in_every_run_is_one_curve() -> None:
    found = [result("ml", num_tuning_examples=size, run=run) for size, run in ((10, "a"), (40, "b"))]
    (curve,) = curves(found)
    assert curve.label == "ML"
    assert curve.runs == ("a", "b")


def test_two_results_for_one_cell_must_agree() -> None:
    assert curves([result(), result()])[0].merits.tolist() == [[0.5]]
    with pytest.raises(InvalidConfig, match=r"ml at 0 dB, seed 0, draw 0 differ \(0.5 and 0.6\)"):
        curves([result(), result(accuracy=0.6)])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"method": None}, "record 1: method is None; it must be text"),
        ({"wnr_db": "high"}, "wnr_db is 'high'"),
        ({"wnr_db": math.nan}, "wnr_db is nan"),
        ({"accuracy": None}, "accuracy is None"),
        ({"accuracy": 61.2}, "accuracy is 61.2; it must be a number from 0 to 1"),
        ({"draw": True}, "draw is True"),
    ],
)
def test_a_record_that_is_no_result_is_refused_by_name(broken: Record, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        curves([result() | broken])


def test_twenty_thousand_records(make_records: Make) -> None:
    found = make_records(num_draws=480, with_trials=False)
    assert len(found) > 20_000
    assert {curve.merits.shape for curve in curves(found)} == {(480, 7)}


def test_the_draws_of_one_level_meet_at_their_mean_wnr() -> None:
    found = [{"level": 4, "draw": 0, "wnr_db": 9.9}, {"level": 4, "draw": 1, "wnr_db": 10.1}, {"wnr_db": 3.0}]
    assert [record["wnr_db"] for record in at_mean_wnr(found)] == [10.0, 10.0, 3.0]
