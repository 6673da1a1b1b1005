"""Decibels and ratios."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import QuietnnError
from quietnn.units import db_to_ratio, ratio_to_db


@pytest.mark.parametrize(("decibels", "ratio"), [(0.0, 1.0), (10.0, 10.0), (-10.0, 0.1), (math.inf, math.inf)])
def test_known_pairs(decibels: float, ratio: float) -> None:
    assert db_to_ratio(decibels) == pytest.approx(ratio)
    assert ratio_to_db(ratio) == pytest.approx(decibels)


@given(st.floats(-3000, 3000))
def test_round_trip(decibels: float) -> None:
    assert ratio_to_db(db_to_ratio(decibels)) == pytest.approx(decibels, abs=1e-9)


def test_no_signal_is_minus_infinity_one_way_only() -> None:
    assert ratio_to_db(0.0) == -math.inf


@pytest.mark.parametrize("decibels", [math.nan, -math.inf, 4000.0, -4000.0])
def test_decibels_that_are_no_ratio(decibels: float) -> None:
    with pytest.raises(QuietnnError, match=str(decibels)):
        db_to_ratio(decibels)


@pytest.mark.parametrize("ratio", [math.nan, -1.0, -math.inf])
def test_ratios_that_have_no_decibels(ratio: float) -> None:
    with pytest.raises(QuietnnError, match=str(ratio)):
        ratio_to_db(ratio)
