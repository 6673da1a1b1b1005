"""Spread beyond the known errors is found, and values are drawn to their centre by as much as they are uncertain."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quietnn.random_effects import excess_variance, shrunk


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_excess_explains_the_deviations_or_is_zero(squares: list[float], known: float, scale: float) -> None:
    values = torch.tensor(squares, dtype=torch.float64)
    excess = excess_variance(values, torch.full_like(values, known), torch.full_like(values, scale))
    assert excess >= 0
    if excess:
        assert float((values / (known + excess * scale)).mean()) == pytest.approx(1, rel=1e-6)
    else:
        assert float(values.mean()) <= known * (1 + 1e-9)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.floats(1e-3, 1e3))
def test_shrunk_values_keep_their_order_and_their_centre(values: list[float], error: float) -> None:
    found = shrunk(values, [error] * len(values))
    assert sorted(found) == pytest.approx(
        [found[index] for index in sorted(range(len(values)), key=values.__getitem__)]
    )
    assert sum(found) == pytest.approx(sum(values), abs=1e-6 * (1 + max(map(abs, values))))
    assert max(found) - min(found) <= max(values) - min(values) + 1e-9


def test_a_value_that_is_sure_stays_and_one_that_is_not_follows_the_others() -> None:
    sure, other, unsure = shrunk([0.0, 10.0, 100.0], errors=[0.0, 0.0, 1e9])
    assert (sure, other) == (0.0, 10.0)
    assert 0.0 < unsure < 10.0
