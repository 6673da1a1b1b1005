"""Spread beyond the known errors is found, and values are drawn to their centre by as much as they are uncertain."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quietnn.random_effects import excess_variance, positive_mean, shrunk


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


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_what_cannot_be_negative_is_above_zero_and_above_what_it_looks_like(value: float, error: float) -> None:
    found = float(positive_mean(torch.tensor([value], dtype=torch.float64), error))
    assert found >= max(value, 0.0) * (1 - 1e-12)
    assert found > 0
    assert found <= max(value, 0.0) + error**0.5


def test_the_mean_above_zero_is_that_of_draws() -> None:
    draws = torch.randn(400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for value in (-2.0, 0.0, 1.0):
        above = (value + 0.5**0.5 * draws).double()
        above = above[above > 0]
        found = float(positive_mean(torch.tensor([value], dtype=torch.float64), 0.5))
        assert found == pytest.approx(float(above.mean()), abs=6 * float(above.std()) / len(above) ** 0.5)
