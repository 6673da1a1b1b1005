"""Which tensors of a file are noisy: the rule of the library, and patterns that override it."""

import pytest
from torch import Tensor

from quietnn.checkpoints.selection import select
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.weights import noisy_names_of_state


@pytest.fixture
def shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


@pytest.fixture
def floating(state: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in state.items() if tensor.is_floating_point()}


def test_the_rule_is_the_librarys_but_for_empty_tensors(
    state: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], floating: set[str]
) -> None:
    chosen = select(shapes, floating)
    assert set(chosen.noisy) == set(noisy_names_of_state(state)) - {"fc.nothing"}
    assert {*chosen.noisy, *chosen.untouched} == set(state)
    assert not set(chosen.noisy) & set(chosen.untouched)


def test_patterns_override_it(shapes: dict[str, tuple[int, ...]], floating: set[str]) -> None:
    assert select(shapes, floating, noisy=["bn.*", "scale"]).noisy == (
        "scale",
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
    )
    assert select(shapes, floating, noisy=["*"], exclude=["bn.*", "?onv.bias"]).noisy == (
        "scale",
        "conv.weight",
        "fc.weight",
    )
    assert "conv.bias" in select(shapes, floating, exclude=["conv.bias"]).untouched


def test_a_pattern_that_is_a_name_means_that_name() -> None:
    shapes = {"a[0].weight": (2, 2), "a0.weight": (2, 2), "b*": (2, 2), "b1": (2, 2), "c\nd": (2, 2)}
    assert select(shapes, shapes, exclude=["a[0].weight"]).untouched == ("a[0].weight",)
    assert select(shapes, shapes, noisy=["a[?].*"]).noisy == ("a[0].weight",)
    assert select(shapes, shapes, noisy=["b*"]).noisy == ("b*",)
    assert select(shapes, shapes, noisy=["b?", "c*d"]).noisy == ("b*", "b1", "c\nd")
    with pytest.raises(InvalidConfig, match=r"is called 'a\[0-9\].weight'"):
        select(shapes, shapes, noisy=["a[0-9].weight"])


def test_patterns_that_fit_nothing(shapes: dict[str, tuple[int, ...]], floating: set[str]) -> None:
    for options in ({"noisy": ["conv"]}, {"exclude": ["mask"]}, {"noisy": ["*"], "exclude": ["CONV*"]}):
        with pytest.raises(InvalidConfig, match="no floating point tensor is called"):
            select(shapes, floating, **options)
    with pytest.raises(InvalidWeights, match="no noisy tensor"):
        select(shapes, floating, exclude=["*"])
