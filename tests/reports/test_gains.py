"""Crossings and gains against curves whose answers are known."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reports.shortcuts import make_curve

from quietnn.reports.curves import Curve
from quietnn.reports.gains import crossing, gain_db
from quietnn.reports.quantities import percent

WNRS = np.arange(-12.0, 13.0, 2.0)


def ramp(shift: float, *, draws: tuple[float, ...] = (0.0,), method: str = "ml") -> Curve:
    """A straight rise from 0 to 1 over 40 dB, so that interpolation is exact; each draw moves it."""
    return make_curve(method, WNRS.tolist(), [((WNRS + 20 + shift + draw) / 40).tolist() for draw in draws])


@given(shift=st.floats(-3, 3), level=st.floats(0.4, 0.6))
def test_a_straight_curve_crosses_where_its_equation_says(shift: float, level: float) -> None:
    assert crossing(ramp(shift), level).wnr_db == pytest.approx(40 * level - 20 - shift, abs=1e-9)


@given(ours=st.floats(-3, 3), theirs=st.floats(-3, 3), level=st.floats(0.4, 0.6))
def test_the_gain_is_the_shift_between_the_curves(ours: float, theirs: float, level: float) -> None:
    gain = gain_db(ramp(ours), ramp(theirs), level)
    assert gain.gain_db == pytest.approx(ours - theirs, abs=1e-9)
    assert (gain.low, gain.high, gain.note) == (None, None, "one draw, so no interval")


def test_of_several_falls_the_one_at_the_highest_wnr_counts() -> None:
    curve = make_curve("ml", [0, 1, 2, 3, 4], [[0.7, 0.4, 0.7, 0.5, 0.9]])
    assert crossing(curve, 0.6).wnr_db == pytest.approx(3.25)


def test_a_point_exactly_at_the_level_holds_it() -> None:
    assert crossing(make_curve("ml", [0, 1, 2], [[0.2, 0.6, 0.8]]), 0.6).wnr_db == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("accuracies", "reason"),
    [
        ([0.1, 0.2, 0.3], "stays below 60 % up to 0 dB"),
        ([math.nan, 0.5, math.nan], "is below 60 % at -2 dB, the only WNR measured"),
        ([math.nan, 0.7, math.nan], "is above 60 % at -2 dB, the only WNR measured"),
        ([0.7, 0.8, 0.9], "stays above 60 % down to -4 dB"),
        ([0.1, 0.8, 0.5], "is below 60 % at 0 dB, the highest WNR measured"),
        ([math.nan, math.nan, math.nan], "has no results"),
    ],
)
def test_a_curve_that_does_not_cross_says_why(accuracies: list[float], reason: str) -> None:
    found = crossing(make_curve("ml", [-4, -2, 0], [accuracies]), 0.6)
    assert (found.wnr_db, found.reason) == (None, reason)


def test_the_paired_interval_of_curves_that_move_together_has_no_width() -> None:
    draws = (-0.8, -0.1, 0.3, 0.9)
    gain = gain_db(ramp(1.5, draws=draws), ramp(0.0, draws=draws), 0.5)
    assert gain.gain_db == pytest.approx(1.5)
    assert (gain.low, gain.high) == (pytest.approx(1.5), pytest.approx(1.5))


@pytest.mark.parametrize(("num_draws", "at_least"), [(3, 0.70), (5, 0.90), (8, 0.92), (20, 0.92)])
def test_the_interval_covers_the_truth_as_often_as_it_says(num_draws: int, at_least: float) -> None:
    generator = np.random.default_rng(num_draws)
    hits = 0
    for _ in range(300):
        ours = ramp(1.0, draws=tuple(generator.normal(0, 0.8, size=num_draws)))
        theirs = ramp(0.0, draws=tuple(generator.normal(0, 0.8, size=num_draws)))
        gain = gain_db(ours, theirs, 0.5, num_resamples=1000)
        assert gain.low is not None
        assert gain.high is not None
        hits += gain.low <= 1.0 <= gain.high
    assert at_least <= hits / 300 <= 0.985


def test_few_draws_say_what_their_interval_is_worth() -> None:
    notes = {}
    for num_draws in (3, 5, 6):
        draws = tuple(np.linspace(-0.5, 0.5, num_draws))
        notes[num_draws] = (
            gain_db(ramp(1.0, draws=draws), ramp(0.0), 0.5).note,
            gain_db(ramp(1.0, draws=draws), ramp(0.0, draws=draws), 0.5).note,
        )
    assert notes[3] == (
        "one draw, so no interval; 1 draws in common of 3 and 1",
        "interval covers at most 75 %",
    )
    assert notes[5][1] == "interval covers at most 93 %"
    assert notes[6][1] == ""


def test_the_same_curves_give_the_same_interval() -> None:
    generator = np.random.default_rng(2)
    ours, theirs = (ramp(shift, draws=tuple(generator.normal(size=12))) for shift in (1.0, 0.0))
    assert gain_db(ours, theirs, 0.5) == gain_db(ours, theirs, 0.5)
    assert gain_db(ours, theirs, 0.5) != gain_db(ours, theirs, 0.5, num_resamples=100)


def test_resamples_that_do_not_cross_are_counted_and_open_the_interval() -> None:
    ours = make_curve("mmse_pb", [0, 2], [[0.3, 0.9], [0.65, 0.9]])
    theirs = make_curve("ml", [0, 2], [[0.2, 0.8], [0.3, 0.8]])
    gain = gain_db(ours, theirs, 0.6)
    assert gain.gain_db is not None
    assert gain.low is not None
    assert gain.low < gain.gain_db
    assert gain.high == math.inf
    count = int(gain.note.split("in ")[1].split()[0])
    assert f"in {count} of 10000 resamples a curve does not cross" in gain.note
    assert 2300 < count < 2700


def test_a_gain_that_cannot_be_read_keeps_its_bound() -> None:
    strong = make_curve("mmse_pb", [0, 2, 4], [[0.7, 0.8, 0.9]])
    middle = make_curve("ml", [0, 2, 4], [[0.2, 0.4, 0.8]])
    weak = make_curve("ml", [0, 2, 4], [[0.1, 0.2, 0.3]])
    above = gain_db(strong, middle, 0.6)
    assert (above.gain_db, above.low, above.high) == (None, None, None)
    assert above.note == "MMSE_pb stays above 60 % down to 0 dB; gain above 3.00 dB"
    assert gain_db(make_curve("mmse", [0, 2, 4], [[0.2, 0.4, 0.8]]), weak, 0.6).note == (
        "ML stays below 60 % up to 4 dB; gain above 1.00 dB"
    )
    assert gain_db(strong, weak, 0.6).above == 4.0
    assert gain_db(weak, middle, 0.6).above is None


def test_cells_that_one_curve_lacks_are_left_out_of_both_and_the_rest_is_named() -> None:
    ours = make_curve("mmse_pb", [-4, 0, 2, 4], [[0.0, 0.2, 0.5, 0.8], [0.0, 0.2, math.nan, 0.8]])
    theirs = make_curve("ml", [0, 2, 4, 6], [[0.1, 0.4, 0.7, 0.9], [0.1, 0.0, 0.7, 0.9], [0.1, 0.4, 0.7, 0.9]])
    gain = gain_db(ours, theirs, 0.6)
    assert gain.num_draws == 2
    assert gain.gain_db == pytest.approx((2 + 2 * 0.2 / 0.3) - (2 + 2 * 0.1 / 0.3))
    assert "2 draws in common of 2 and 3" in gain.note
    assert "1 of 6 cells missing" in gain.note


def test_a_resample_without_a_cell_goes_straight_past_it() -> None:
    gaps = [[0.0, math.nan, 0.8], [0.0, 0.4, 0.8]]
    gain = gain_db(make_curve("a", [0, 1, 2], gaps), make_curve("ml", [0, 1, 2], gaps), 0.6)
    assert (gain.gain_db, gain.low, gain.high) == (0.0, 0.0, 0.0)


def test_a_curve_may_be_measured_at_wnrs_of_its_own() -> None:
    ours = make_curve("posterior", [-2, 0], [[0.5, 0.7], [0.5, 0.7]])
    theirs = make_curve("ml", [0, 4, 6], [[0.1, 0.4, 0.8], [0.1, 0.4, 0.8]])
    gain = gain_db(ours, theirs, 0.6)
    assert gain.gain_db == pytest.approx(5.0 - -1.0)
    half = make_curve("ml", [0, 4, 6], [[0.1, 0.4, 0.8], [0.1, 0.4, math.nan]])
    assert "not measured for all draws at 6 dB" in gain_db(ours, half, 0.6).note


def test_nothing_in_common_is_said() -> None:
    ml = dataclasses.replace(make_curve("ml", [2], [[0.5]]), draws=((0, 7),))
    gain = gain_db(make_curve("mmse", [0], [[0.5]]), ml, 0.6)
    assert gain.gain_db is None
    assert gain.note.startswith("nothing measured for both")


def test_an_accuracy_is_said_in_per_cent() -> None:
    assert (percent(0.6), percent(0.625)) == ("60 %", "62.5 %")
