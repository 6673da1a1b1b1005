"""Where a repair may act: what is refused, and how a budget is spent."""

import re

import pytest
import torch

from quietnn.errors import InvalidConfig
from quietnn.repairs.beside.where import WEIGHTS, Where, rank_within, rows_of

WEIGHTS_OF = {"a": torch.zeros(6, 9), "b": torch.zeros(20, 30), "bias": torch.zeros(6)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trainable": "adapters"}, "did you mean 'adapter'"),
        ({"trainable": "digital", "rank": 2}, "trainable='adapter', rank=2"),
        ({"rank": 2}, "rank is 2, and trainable is 'weights'"),
        ({"trainable": "adapter", "rank": 2, "budget": 0.1}, "leave one out"),
        ({"trainable": "adapter", "budget": 2}, "budget=0.02"),
        ({"trainable": "adapter", "budget": "much"}, "budget is 'much'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        Where(**options)  # type: ignore[arg-type]


def test_a_state_dict_has_no_layers_to_act_beside() -> None:
    with pytest.raises(InvalidConfig, match="what arrived is a dict; load it first"):
        Where("digital").check({"w": torch.zeros(2)}, {"w": torch.zeros(2)})


@pytest.mark.parametrize("rank", [0, 20, 1.5])
def test_a_rank_that_no_matrix_has_room_for_is_refused(rank: int) -> None:
    with pytest.raises(InvalidConfig, match="must be 1 to 19: rank=8"):
        rank_within(rank, WEIGHTS_OF)


def test_one_rank_serves_all_matrices_that_are_larger() -> None:
    singular = {"a": torch.ones(6), "b": torch.ones(20)}
    assert Where("adapter", rank=7).ranks(singular, WEIGHTS_OF, num_parameters=660, spent=0) == {"b": 7}
    assert Where("adapter").ranks(singular, WEIGHTS_OF, num_parameters=660, spent=0) == {"b": 8}


def test_a_budget_goes_where_a_number_buys_most_and_is_never_passed() -> None:
    singular = {"a": torch.tensor([2.0, 1.0, 0.0]), "b": torch.tensor([3.0, 1.0])}
    # A direction of a costs 15 numbers, one of b 50: 4 / 15 > 9 / 50 > 1 / 15 > 1 / 50. What is worth 0 is not bought.
    bought = {15: (1, 0), 64: (2, 0), 65: (1, 1), 80: (2, 1), 130: (2, 2), 400: (2, 2)}
    for numbers, (of_a, of_b) in bought.items():
        where = Where("adapter", budget=(numbers + 10) / 1000)
        expected = {"a": of_a, "b": of_b} if of_b else {"a": of_a}
        assert where.ranks(singular, WEIGHTS_OF, num_parameters=1000, spent=10) == expected, numbers


def test_a_budget_below_what_is_digital_is_refused_with_one_that_is_enough() -> None:
    with pytest.raises(InvalidConfig, match=re.escape("budget=0.040")):
        Where("adapter", budget=0.01).ranks({}, WEIGHTS_OF, num_parameters=1000, spent=30)


def test_the_usual_place_is_the_weights() -> None:
    assert not WEIGHTS.weights_stay
    assert Where("digital").options == {"trainable": "digital", "rank": None, "budget": None}
    assert rows_of(torch.zeros(2, 3, 4)).shape == (2, 12)
    assert rows_of(torch.zeros(5)).shape == (1, 5)
