"""Where each method stands against ML: ranked by gain, by its bound, or by the change at one WNR."""

import math
from collections.abc import Callable

import pytest
from tests.reports.shortcuts import make_curve

from quietnn.records import Record
from quietnn.reports.analysis import analyse_task
from quietnn.reports.page.standing import change_between, standings, told_apart

Make = Callable[..., list[Record]]

ML = make_curve("ml", [0, 2, 4], [[0.2, 0.4, 0.8], [0.22, 0.44, 0.82]])


def records(**accuracies: list[list[float]]) -> list[Record]:
    """Two WNRs or more from 0 dB up in steps of 2, draw by draw, for each method."""
    return [
        {"method": method, "wnr_db": 2.0 * at, "draw": draw, "accuracy": accuracy, "run": "r"}
        for method, draws in accuracies.items()
        for draw, row in enumerate(draws)
        for at, accuracy in enumerate(row)
    ]


def test_a_bound_above_a_gain_stands_first_and_accuracy_decides_between_equal_bounds() -> None:
    found = records(
        ml=[[0.2, 0.4, 0.8], [0.22, 0.44, 0.82]],
        mmse_pb=[[0.3, 0.7, 0.9], [0.31, 0.71, 0.91]],
        posterior=[[0.9, 0.95, 0.97], [0.91, 0.95, 0.97]],
        finetuned=[[0.7, 0.95, 0.97], [0.71, 0.95, 0.97]],
    )
    order = [one.curve.method for one in standings(analyse_task("digits", found, 0.6, 50))]
    assert order == ["posterior", "finetuned", "mmse_pb"]


def test_oracles_and_ml_itself_do_not_stand() -> None:
    found = records(ml=[[0.2, 0.4]], mmse_pb_oracle=[[0.8, 0.9]], mmse=[[0.1, 0.3]])
    (only,) = standings(analyse_task("digits", found, 0.6, 50))
    assert only.curve.method == "mmse"
    assert not only.helps


def test_the_change_is_read_where_the_method_still_holds_the_level() -> None:
    change = change_between(make_curve("mmse_pb", [0, 2, 4], [[0.5, 0.7, 0.9], [0.5, 0.72, 0.9]]), ML, 0.6)
    assert change is not None
    assert (change.wnr_db, change.num_draws) == (2.0, 2)
    assert (change.before, change.after) == pytest.approx((0.42, 0.71))
    assert change.low is not None
    assert change.low == pytest.approx(0.29 - 12.706 * 0.01, abs=1e-3)  # Student, one degree of freedom


def test_a_method_that_never_holds_the_level_is_read_at_its_best() -> None:
    change = change_between(make_curve("mmse", [0, 2, 4], [[0.1, 0.2, 0.5]]), ML, 0.6)
    assert change is not None
    assert (change.wnr_db, change.before, change.low) == (4.0, 0.8, None)


def test_cells_that_one_curve_lacks_are_left_out_of_both() -> None:
    change = change_between(make_curve("mmse_pb", [0, 2], [[0.7, 0.8], [math.nan, 0.8]]), ML, 0.6)
    assert change is not None
    assert (change.wnr_db, change.before, change.num_draws) == (0.0, 0.2, 1)


def test_nothing_in_common_is_no_change() -> None:
    assert change_between(make_curve("mmse_pb", [6, 8], [[0.7, 0.8]]), ML, 0.6) is None


def test_two_curves_are_told_apart_by_the_interval_of_their_lead() -> None:
    wnrs = [0, 2, 4]
    first = make_curve("mmse_pb", wnrs, [[0.3, 0.7, 0.9], [0.32, 0.71, 0.9], [0.31, 0.7, 0.9]])
    level = make_curve("mmse_p", wnrs, [[0.32, 0.7, 0.9], [0.31, 0.68, 0.9], [0.3, 0.7, 0.9]])
    behind = make_curve("mmse", wnrs, [[0.1, 0.5, 0.8], [0.12, 0.51, 0.8], [0.11, 0.5, 0.8]])
    assert told_apart(first, behind, 0.6) is True
    assert told_apart(first, level, 0.6) is False
    assert told_apart(make_curve("mmse_pb", wnrs, [[0.3, 0.7, 0.9]]), behind, 0.6) is None
    assert told_apart(first, behind, 0.2) is True  # no gain to read: by the change at 0 dB
