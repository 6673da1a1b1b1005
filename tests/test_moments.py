"""Moments: right wherever the mean lies, the same bits in any chunks, memory and order, on any threads."""

import math
from collections.abc import Iterator
from threading import Event, Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.moments import AT_ONCE, BLOCK, WeightStatistics, block_moments, empty_moments, one_torch_thread

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
    digits = 2e-7 if dtype == torch.float32 else 5e-7  # the order of a sum depends on the processor
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


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class TestStatistics:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1000.0, 0.5), (-1e-3, 1e-4)])
    def test_against_numpy_in_double_precision(self, dtype: torch.dtype, mean: float, std: float) -> None:
        """To ten digits and more where the weights have sixteen, else to seven."""
        values = torch.from_numpy(np.random.default_rng(0).normal(mean, std, 20_011)).to(dtype)
        statistics = WeightStatistics.from_clean([values[:7000].view(70, 100), values[7000:]])
        exact = values.double().numpy()
        assert statistics.num_weights == 20_011
        digits = 1e-10 if dtype == torch.float64 else 1e-7
        close = 0.0 if dtype == torch.float64 else 1e-8 * std
        assert statistics.mean == pytest.approx(exact.mean(), abs=close, rel=1e-13)
        assert statistics.variance == pytest.approx(exact.var(), rel=digits)
        assert statistics.second_moment == pytest.approx((exact**2).mean(), rel=digits)

    def test_a_large_mean_does_not_drown_the_variance(self) -> None:
        values = torch.tensor([1e8 - 1e-3, 1e8 + 1e-3], dtype=torch.float64)
        assert WeightStatistics.from_clean([values]).variance == pytest.approx(1e-6, rel=1e-4)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("num_weights", [1, 4097, 4096 * 70 + 5])
    @pytest.mark.usefixtures("threads")
    def test_bits_do_not_depend_on_chunks_threads_offset_or_order(self, dtype: torch.dtype, num_weights: int) -> None:
        values = torch.from_numpy(np.random.default_rng(1).normal(3.0, 0.05, num_weights)).to(dtype)
        expected = WeightStatistics.from_clean([values])
        shifted = torch.cat([values[:1], values])[1:]
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            for blocks in (1, 3, 65):
                chunks = list(torch.split(values, 4096 * blocks))
                assert WeightStatistics.from_clean(chunks) == expected
                assert WeightStatistics.from_clean(reversed(chunks)) == expected
            assert WeightStatistics.from_clean([shifted]) == expected

    def test_layout_does_not_matter(self) -> None:
        values = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
        strided = values.contiguous(memory_format=torch.channels_last)
        assert WeightStatistics.from_clean([strided]) == WeightStatistics.from_clean([values])

    @given(st.floats(0, 10))
    def test_received_statistics_subtract_the_noise(self, noise_variance: float) -> None:
        received = torch.tensor([1.0, 5.0])
        statistics = WeightStatistics.from_received([received], noise_variance)
        assert statistics == WeightStatistics(3.0, max(4.0 - noise_variance, 0.0), 2)

    @pytest.mark.parametrize("noise_variance", [-1.0, math.nan, math.inf])
    def test_noise_that_is_no_variance(self, noise_variance: float) -> None:
        with pytest.raises(QuietnnError, match=rf"noise_variance is {noise_variance}.*not negative"):
            WeightStatistics.from_received([torch.ones(2)], noise_variance)

    @pytest.mark.parametrize("tensors", [[], [torch.ones(0)]])
    def test_an_empty_group(self, tensors: list[Tensor]) -> None:
        with pytest.raises(QuietnnError, match=r"at least one weight"):
            WeightStatistics.from_clean(tensors)

    @pytest.mark.parametrize(
        "values", [[1.0, math.nan], [math.inf, -math.inf], [1e300, -1e300], [1.7e308] * 3, [1e200] * 5000 + [0.0]]
    )
    def test_weights_without_finite_statistics(self, values: list[float]) -> None:
        with pytest.raises(InvalidWeights, match=r"must be finite, repair or scale down"):
            WeightStatistics.from_clean([torch.tensor(values, dtype=torch.float64)])


def test_the_setting_is_as_before_whatever_happens() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_torch_thread(), one_torch_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(ZeroDivisionError), one_torch_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_uses_that_overlap_do_not_leave_one_thread_behind() -> None:
    """The second begins within the first and ends after it; the setting is that of the process, for new threads too."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    first_is_in, second_is_in, first_is_out = Event(), Event(), Event()

    def first() -> None:
        with one_torch_thread():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(10)
        with one_torch_thread():
            second_is_in.set()
            first_is_out.wait(10)

    try:
        threads = [Thread(target=first), Thread(target=second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen: list[int] = []
        fresh = Thread(target=lambda: seen.append(torch.get_num_threads()))
        fresh.start()
        fresh.join()
        assert seen == [3]
    finally:
        torch.set_num_threads(before)
