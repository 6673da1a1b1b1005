"""Block moments: right wherever the mean lies, the same bits in any chunks and in any memory."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quietnn.moments import AT_ONCE, BLOCK, block_moments, empty_moments

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.65, 1.8, 100.0, 1e6], ids=str)
def test_spread_is_right_wherever_the_mean_lies(ratio: float) -> None:
    """Below and above the ratio of mean to spread where the sum of squares no longer serves."""
    values = torch.from_numpy(np.random.default_rng(3).normal(ratio, 1.0, 3 * BLOCK + 7))
    counts, means, squares = block_moments(values)
    assert counts.tolist() == [BLOCK, BLOCK, BLOCK, 7]
    for block, count, mean, square in zip(torch.split(values, BLOCK), counts, means, squares, strict=True):
        assert float(mean) == pytest.approx(math.fsum(block.tolist()) / float(count), rel=1e-14, abs=1e-15)
        exact = math.fsum((value - float(mean)) ** 2 for value in block.tolist())
        assert float(square) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.65, 1.8, 100.0], ids=str)
def test_up_to_32_bits_are_summed_to_six_digits_in_every_block(dtype: torch.dtype, ratio: float) -> None:
    values = torch.from_numpy(np.random.default_rng(4).normal(ratio, 1.0, 40 * BLOCK + 7)).to(dtype)
    _, means, squares = block_moments(values)
    digits = 1e-7 if dtype == torch.float32 else 5e-7
    for block, mean, square in zip(torch.split(values.double(), BLOCK), means, squares, strict=True):
        assert float(mean) == pytest.approx(float(block.mean()), rel=digits, abs=digits)
        assert float(square) == pytest.approx(float((block - block.mean()).square().sum()), rel=10 * digits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-18, 1e25, 1e38])
def test_squares_may_leave_the_range_of_float32(dtype: torch.dtype, scale: float) -> None:
    values = torch.from_numpy(np.random.default_rng(5).uniform(-scale, scale, BLOCK + 100)).to(dtype)
    _, _, squares = block_moments(values)
    for block, square in zip(torch.split(values.double(), BLOCK), squares, strict=True):
        assert float(square) == pytest.approx(float((block - block.mean()).square().sum()), rel=2e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e30])
def test_equal_values_have_hardly_any_spread(value: float) -> None:
    _, means, squares = block_moments(torch.full((BLOCK + 5,), value, dtype=torch.float64))
    assert means.tolist() == pytest.approx([value, value], rel=1e-14)
    assert all(0 <= math.sqrt(square / BLOCK) <= 1e-13 * abs(value) for square in squares.tolist())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=10, deadline=None)
@given(num_values=st.integers(1, 5 * BLOCK), num_blocks=st.integers(1, 6), centre=st.sampled_from([0.0, 30.0]))
def test_chunks_and_memory_change_no_bit(dtype: torch.dtype, num_values: int, num_blocks: int, centre: float) -> None:
    values = torch.from_numpy(np.random.default_rng(num_values).normal(centre, 1.0, num_values)).to(dtype)
    expected = block_moments(values)
    into = empty_moments(num_values)
    for start in range(0, num_values, num_blocks * BLOCK):
        piece = values[start : start + num_blocks * BLOCK]
        first = start // BLOCK
        counts, means, squares = (column[first : first - (-len(piece) // BLOCK)] for column in into)
        block_moments(piece, into=(counts, means, squares))
    assert all(torch.equal(one, other) for one, other in zip(expected, into, strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, AT_ONCE, AT_ONCE + BLOCK + 1])
def test_a_value_that_is_not_finite_shows_in_its_blocks_mean(value: float, place: int) -> None:
    values = torch.zeros(AT_ONCE + BLOCK + 2, dtype=torch.float16)
    values[place] = value
    _, means, _ = block_moments(values)
    assert [index for index, mean in enumerate(means.tolist()) if not math.isfinite(mean)] == [place // BLOCK]


def test_nothing_has_no_blocks() -> None:
    assert [len(column) for column in block_moments(torch.ones(0))] == [0, 0, 0]
