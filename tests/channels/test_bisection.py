"""Bisection that asks for several costs at once finds what plain bisection finds."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.channels.bisection import NUM_HALVINGS, smallest_within
from quietnn.channels.digital import CodedDigital, bits_per_weight

Cost = Callable[[float], float]


def plain(cost: Cost, limit: float, low: float, high: float) -> float:
    for _ in range(NUM_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > limit else (low, middle)
    return high


def foreseeing(cost: Cost, limit: float, low: float, high: float) -> tuple[float, list[int]]:
    asked: list[int] = []

    def costs(steps: Sequence[float]) -> list[float]:
        asked.append(len(steps))
        return [cost(step) for step in steps]

    return smallest_within(costs, limit, low, high), asked


@given(
    limit=st.floats(0.0, 25.0),
    shape=st.floats(0.1, 5.0),
    waves=st.floats(0.0, 3.0),
    pace=st.floats(0.1, 1000.0),
    high=st.floats(1e-6, 1e6),
)
def test_whatever_the_costs_it_is_plain_bisection(
    limit: float, shape: float, waves: float, pace: float, high: float
) -> None:
    """Also where they rise and fall, and nothing can be foreseen."""

    def cost(step: float) -> float:
        return shape * math.log2(high / step) + waves * math.sin(pace * math.log(step))

    found, asked = foreseeing(cost, limit, high * 2.0**-20, high)
    assert found == plain(cost, limit, high * 2.0**-20, high)
    assert len(asked) <= NUM_HALVINGS


@pytest.mark.parametrize("wnr_db", [-5.0, 6.0, 15.0, 40.0])
def test_entropies_are_foreseen(wnr_db: float, shapes: dict[str, Tensor]) -> None:
    """A fifth to a third of the readings, and few costs that turn out to be of no use."""
    high = 2.5 * max(float(tensor.abs().max()) for tensor in shapes.values())
    capacity = CodedDigital(wnr_db).capacity

    def cost(step: float) -> float:
        return bits_per_weight(shapes, dict.fromkeys(shapes, step))

    found, asked = foreseeing(cost, capacity, high * 2.0**-20, high)
    assert found == plain(cost, capacity, high * 2.0**-20, high)
    assert CodedDigital(wnr_db, per_tensor=False).steps(shapes) == dict.fromkeys(shapes, found)
    assert len(asked) <= 8
    assert sum(asked) <= 36


def test_steps_do_not_depend_on_the_order_of_tensors(shapes: dict[str, Tensor]) -> None:
    turned = dict(reversed(shapes.items()))
    assert CodedDigital(9.0).steps(shapes) == CodedDigital(9.0).steps(turned)
    assert CodedDigital(9.0).steps({"w": torch.zeros(3)}) == {"w": pytest.approx(2.0**-20, rel=1e-4)}
