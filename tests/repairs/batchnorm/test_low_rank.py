"""Reduced-rank regression beside a layer: what ordinary least squares would find, cut to its leading directions."""

import pytest
import torch
from torch import Tensor, nn

from quietnn.repairs.batchnorm.low_rank import outputs, regress, takes


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def left(errors: Tensor, made: Tensor) -> float:
    return float((errors - made + made.mean(0)).square().mean())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 5), (4000, 6)),
        (nn.Conv2d(3, 5, 3, padding=1, stride=2), (200, 3, 8, 8)),
        (nn.Conv2d(3, 5, 3, padding="same", padding_mode="reflect", dilation=2), (200, 3, 8, 8)),
    ],
)
def test_a_change_of_low_rank_is_found(layer: nn.Linear | nn.Conv2d, shape: tuple[int, ...]) -> None:
    inputs, rows = drawn(*shape), layer.weight[0].numel()
    up, down = drawn(5, 2, seed=1), drawn(2, rows, seed=2)
    wanted = outputs(layer, inputs, up, down)
    places = [place for place in range(wanted.dim()) if place != 1]
    errors = wanted - wanted.mean(places, keepdim=True)
    found = regress(layer, inputs, errors)
    first = found.first(2)
    torch.testing.assert_close(first[0] @ first[1], up @ down, atol=0.02, rtol=0.02)
    assert float(found.values[2]) < 0.02 * float(found.values[1])


def test_values_say_how_much_error_each_direction_takes_off() -> None:
    layer, inputs = nn.Linear(6, 5), drawn(20_000, 6)
    errors = inputs @ drawn(5, 6, seed=1).T + 0.1 * drawn(20_000, 5, seed=2)
    errors = errors - errors.mean(0)
    found = regress(layer, inputs, errors)
    before = float(errors.square().mean(0).sum())
    for rank in (1, 3):
        after = float((errors - outputs(layer, inputs, *found.first(rank))).square().mean(0).sum())
        assert before - after == pytest.approx(float(found.values[:rank].square().sum()), rel=0.02)


def test_few_examples_of_many_inputs_are_held_back() -> None:
    """With fewer examples than inputs, least squares would take off all errors, and help nothing elsewhere."""
    layer = nn.Linear(300, 20)
    change = drawn(20, 300, seed=1)
    seen, unseen = drawn(60, 300, seed=2), drawn(500, 300, seed=3)
    errors = seen @ change.T
    found = regress(layer, seen, errors - errors.mean(0))
    made = outputs(layer, unseen, *found.first(20))
    assert left(unseen @ change.T, made) < left(unseen @ change.T, torch.zeros_like(made))


def test_layers_that_it_fits_beside() -> None:
    assert takes(nn.Linear(2, 2))
    assert takes(nn.Conv2d(2, 2, 1))
    assert not takes(nn.Conv2d(2, 2, 1, groups=2))
    assert not takes(nn.Conv1d(2, 2, 1))
