"""Noise that is a function of seed, name and position, and of nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quietnn.channels.randomness import BLOCK, check_seed, standard_normal
from quietnn.errors import QuietnnError


def test_values_are_pinned() -> None:
    """A change here changes every published number."""
    first = standard_normal(3, seed=0, name="conv.weight").tolist()
    second = standard_normal(2, seed=0, name="conv.weight", start=BLOCK).tolist()
    assert first == pytest.approx([0.802418, 0.348675, 1.33964], abs=1e-6)
    assert second == pytest.approx([-0.388949, 0.818633], abs=1e-6)


@given(st.integers(1, 3 * BLOCK), st.integers(0, 2))
def test_any_stretch_equals_the_same_stretch_of_the_whole(num_values: int, block: int) -> None:
    whole = standard_normal(6 * BLOCK, seed=5, name="w")
    stretch = standard_normal(num_values, seed=5, name="w", start=block * BLOCK)
    assert torch.equal(stretch, whole[block * BLOCK : block * BLOCK + num_values])


def test_seeds_names_and_blocks_are_independent() -> None:
    draws = [
        standard_normal(BLOCK, seed=0, name="a"),
        standard_normal(BLOCK, seed=1, name="a"),
        standard_normal(BLOCK, seed=0, name="b"),
        standard_normal(BLOCK, seed=0, name="a", start=BLOCK),
        standard_normal(BLOCK, seed=1, name="0:a"),
        standard_normal(BLOCK, seed=10, name="a"),
    ]
    correlation = np.corrcoef(torch.stack(draws).numpy()) - np.eye(len(draws))
    assert np.abs(correlation).max() < 5 / BLOCK**0.5


def test_values_are_standard_normal() -> None:
    values = standard_normal(4 * BLOCK, seed=2, name="w").double().numpy()
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert values.mean() == pytest.approx(0.0, abs=4 / len(values) ** 0.5)
    assert values.var() == pytest.approx(1.0, abs=4 * (2 / len(values)) ** 0.5)


def test_the_global_generators_are_neither_read_nor_moved() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first = standard_normal(10, seed=3, name="w")
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(standard_normal(10, seed=3, name="w"), first)


def test_a_start_inside_a_block() -> None:
    with pytest.raises(QuietnnError, match=rf"a multiple of {BLOCK} values, not at 7"):
        standard_normal(1, seed=0, name="w", start=7)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, None])
def test_what_is_no_seed(seed: int) -> None:
    with pytest.raises(QuietnnError, match=f"seed is {seed!r}; it must be a whole number, zero or more"):
        check_seed(seed)


def test_whole_numbers_of_any_kind_are_seeds() -> None:
    expected = standard_normal(4, seed=7, name="w")
    assert torch.equal(standard_normal(4, seed=np.int64(7), name="w"), expected)  # type: ignore[arg-type]
    assert standard_normal(4, seed=2**200, name="w").isfinite().all()
