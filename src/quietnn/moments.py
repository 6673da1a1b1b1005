"""Mean and spread of weights: the same bits in any chunks, any order, on any threads."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.theory.family import check_variance

Moments = tuple[Tensor, Tensor, Tensor]
"""Count, mean and sum of squared deviations of blocks of weights, as `block_moments` gives them."""

Column = np.ndarray[Any, np.dtype[np.float64]]

BLOCK = 4096
"""Weights per partial sum. Fixed, so that a statistic does not depend on chunking, threads or tensor order."""

AT_ONCE = 512 * BLOCK
"""Weights that are summed in one call: enough that threads seldom wait for each other at the interpreter's lock."""

_FAR = 4.0

_SMALL = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps ** 2
"""Below this the sum of squares in float32 has lost digits to the bottom of its range."""


def empty_moments(num_values: int) -> Moments:
    """Room for the moments of a tensor, with the counts filled in.

    >>> empty_moments(5000)[0].tolist()
    [4096.0, 904.0]
    """
    num_blocks = -(-num_values // BLOCK)
    counts, means, squares = (torch.zeros(num_blocks, dtype=torch.float64) for _ in range(3))
    counts.fill_(BLOCK)
    if num_values % BLOCK:
        counts[-1] = num_values % BLOCK
    return counts, means, squares


def block_moments(tensor: Tensor, *, into: Moments | None = None) -> Moments:
    """Count, mean and sum of squared deviations of each block of 4096 weights.

    A block is summed in float32, to about seven digits (16-bit weights to six, float64 weights in float64), and
    blocks are combined by exact summation. The blocks are fixed by the tensor alone, so a statistic is the same to the
    last bit however the tensor was cut into chunks (at multiples of the block) and whatever the thread count. A value
    that is not finite leaves a mean that is not.

    Args:
        tensor: any floating point tensor.
        into: from `empty_moments`, or a slice of it, to write to.

    >>> counts, means, squares = block_moments(torch.tensor([1.0, 3.0]))
    >>> (counts.item(), means.item(), squares.item())
    (2.0, 2.0, 2.0)
    """
    flat = tensor.detach().reshape(-1)
    if into is None:
        into = empty_moments(flat.numel())
    counts, means, squares = (column.numpy() for column in into)
    whole = flat.numel() // BLOCK * BLOCK
    stops = [*range(AT_ONCE, whole, AT_ONCE), whole, flat.numel()]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start, stop in zip([0, *stops], stops, strict=False):
            if start < stop:
                blocks = slice(start // BLOCK, -(-stop // BLOCK))
                _moments(flat[start:stop], counts[blocks], means[blocks], squares[blocks])
    return into


def _moments(values: Tensor, counts: Column, means: Column, squares: Column) -> None:
    """The moments of blocks of equal length."""
    rows = values.view(len(counts), -1)
    if values.device.type != "cpu":
        rows = rows.to(torch.promote_types(values.dtype, torch.float32))
        means[:], squares[:] = rows.sum(dim=1).cpu().numpy(), rows.square().sum(dim=1).cpu().numpy()
    elif values.dtype.itemsize == 2:
        return _narrow_moments(rows, counts, means, squares)
    else:
        _sum(rows, means, squares)
    _centre(rows, counts, means, squares)


def _narrow_moments(rows: Tensor, counts: Column, means: Column, squares: Column) -> None:
    """Moments of 16-bit weights by the kernel of batch normalisation, which widens them as it goes."""
    unused = torch.zeros(len(rows))
    mean, variance = torch.batch_norm_update_stats(rows[None], unused, unused.clone(), 0.0)
    means[:], squares[:] = mean.numpy(), variance.numpy()
    good = (squares > _SMALL) & (squares < np.inf) & (means * means < (_FAR - 1) * squares)
    squares *= counts
    _take_again(rows, ~good, means, squares)


def _sum(rows: Tensor, sums: Column, squares: Column) -> None:
    """Sum and sum of squares of each row: products of vectors, which BLAS does without another copy.

    They go through numpy because torch hands the interpreter's lock over at every call, however small, and threads that
    stream a file then wait for each other: two threads took twice as long as one.
    """
    table = rows.numpy()[:, None]
    ones = np.ones((table.shape[2], 1), dtype=table.dtype)
    sums[:] = np.matmul(table, ones)[:, 0, 0]
    squares[:] = np.matmul(table, table.transpose(0, 2, 1))[:, 0, 0]


def _centre(rows: Tensor, counts: Column, means: Column, squares: Column) -> None:
    """Turn the sums into means and the sums of squares into those of squared deviations, mostly without another pass.

    `sum (w - m)^2 = sum w^2 - n m^2` loses a factor of 4 in precision where it is a quarter of `sum w^2`. Blocks where
    it is less, whose mean is 1.7 times their spread, and blocks whose squares leave the range of the numbers they were
    summed in are taken again in float64, about their mean.
    """
    limits = torch.finfo(torch.promote_types(rows.dtype, torch.float32))
    means /= counts
    deviations = squares - counts * means * means
    within = (squares > limits.tiny / limits.eps**2) & (squares < np.inf)  # neither is so for NaN
    good = within & (deviations * _FAR >= squares)
    squares[:] = deviations
    _take_again(rows, ~good, means, squares)


def _take_again(rows: Tensor, which: np.ndarray[Any, np.dtype[np.bool_]], means: Column, squares: Column) -> None:
    """The mean and the sum of squared deviations of some rows in float64."""
    for index in map(int, np.flatnonzero(which)):
        row = rows[index].double()
        mean = row.mean()
        means[index], squares[index] = mean.item(), (row - mean).square().sum().item()


@dataclass(frozen=True)
class WeightStatistics:
    """The Gaussian prior of a group: `w ~ N(mean, variance)`, from clean or from received weights.

    Attributes:
        mean: `mu_w`.
        variance: `sigma_w^2`.
        num_weights: how many weights they were taken over.

    >>> WeightStatistics(mean=1.0, variance=4.0, num_weights=10).second_moment
    5.0
    """

    mean: float
    variance: float
    num_weights: int

    @property
    def second_moment(self) -> float:
        """`E[w^2] = sigma_w^2 + mu_w^2`."""
        return self.variance + self.mean**2

    @classmethod
    def from_clean(cls, tensors: Iterable[Tensor]) -> "WeightStatistics":
        """The sample mean and variance of weights that carry no noise (population variance, divisor d).

        >>> WeightStatistics.from_clean([torch.tensor([1.0, 3.0]), torch.tensor([5.0])])
        WeightStatistics(mean=3.0, variance=2.6666666666666665, num_weights=3)

        Raises:
            InvalidWeights: if a weight is not finite, or so large that its square is no float64.
        """
        return cls.from_moments([block_moments(tensor) for tensor in tensors])

    @classmethod
    def from_moments(cls, moments: Sequence[Moments]) -> "WeightStatistics":
        """The statistics of a group whose `block_moments` were taken earlier, in any order and any chunks."""
        count = math.fsum(float(counts.sum()) for counts, _, _ in moments)
        if not count:
            raise QuietnnError("a group without weights has no statistics; give it at least one weight")
        mean = _exact_sum(counts * means for counts, means, _ in moments) / count
        within = _exact_sum(squares for _, _, squares in moments)
        between = _exact_sum(counts * (means - mean) ** 2 for counts, means, _ in moments)
        variance = (within + between) / count
        if not math.isfinite(variance):
            raise InvalidWeights(
                f"the weights have mean {mean} and variance {variance}; both must be finite, "
                "repair or scale down the weights first"
            )
        return cls(mean=mean, variance=variance, num_weights=int(count))

    @classmethod
    def from_received(cls, tensors: Iterable[Tensor], noise_variance: float) -> "WeightStatistics":
        """What a receiver can infer of the clean weights: `mu_w = mean(r)`, `sigma_w^2 = max(var(r) - sigma_z^2, 0)`.

        >>> WeightStatistics.from_received([torch.tensor([1.0, -1.0])], noise_variance=0.25)
        WeightStatistics(mean=0.0, variance=0.75, num_weights=2)
        """
        return cls.from_clean(tensors).without_noise(noise_variance)

    def without_noise(self, noise_variance: float) -> "WeightStatistics":
        """The statistics of the clean weights, from these of the received ones: the noise variance is subtracted."""
        check_variance(noise_variance, "noise_variance")
        return replace(self, variance=max(self.variance - noise_variance, 0.0))


def _exact_sum(tensors: Iterable[Tensor]) -> float:
    """The correctly rounded sum of all values, in any order; NaN where it is too large or undefined."""
    try:
        return math.fsum(chain.from_iterable(tensor.tolist() for tensor in tensors))
    except (OverflowError, ValueError):
        return math.nan


_LOCK = Lock()
_lent: list[int] = []
"""For each use that is going on, the setting that the first of them found."""


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing its work among threads; the setting is as before once the last of several uses ends.

    Threads change last bits: sums are taken in another order, and logarithms or complex quotients are computed another
    way at the ends of each thread's part. What is to be the same on any machine, and from a file, is computed by one.

    >>> with one_torch_thread():
    ...     torch.get_num_threads()
    1
    """
    with _LOCK:
        _lent.append(_lent[0] if _lent else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            before = _lent.pop()
            torch.set_num_threads(1 if _lent else before)
