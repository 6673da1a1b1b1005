"""When a fit is used, and when the start that it came from."""

import math

import pytest
import torch
from torch import Tensor

from quietnn.repairs.posterior import is_clearly_better, mean_loss, parts_of
from quietnn.score import folds


def is_worth_it(fit: Tensor, start: Tensor, parts: list[Tensor]) -> bool:
    return not is_clearly_better(start, fit, parts, standard_errors=2.0)


@pytest.mark.parametrize("num_examples", [2, 3, 9, 100])
def test_parts_hold_every_held_out_example_once(num_examples: int) -> None:
    splits = folds(num_examples, 2, seed=1)
    for split, parts in zip(splits, parts_of(splits), strict=True):
        assert torch.cat(parts).tolist() == split.held_out.tolist()
        assert all(len(part) for part in parts)


def test_parts_of_unequal_size_count_by_their_examples() -> None:
    parts = [torch.arange(3), torch.arange(1)]
    assert mean_loss(torch.tensor([1.0, 5.0]), parts) == 2.0


def test_a_draw_goes_to_the_fit_and_a_clear_loss_to_the_start() -> None:
    parts = [torch.arange(10)] * 10
    start = torch.linspace(0.5, 1.5, 10)
    noise = torch.tensor([0.1, -0.1] * 5)
    assert is_worth_it(start - 0.2, start, parts)
    assert is_worth_it(start + noise + 0.02, start, parts)
    assert is_worth_it(start + noise + 0.06, start, parts)
    assert not is_worth_it(start + noise + 0.08, start, parts)


def test_what_is_not_finite_loses() -> None:
    parts = [torch.arange(5)] * 2
    finite, broken = torch.ones(2), torch.tensor([1.0, math.inf])
    assert not is_worth_it(broken, finite, parts)
    assert not is_worth_it(broken, broken, parts)
    assert is_worth_it(finite, broken, parts)
