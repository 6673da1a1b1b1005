"""Mean and spread of long rows of weights, block by block: the same bits in any chunks, any order, on any threads."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor, Tensor]
"""Count, mean and sum of squared deviations of blocks of weights, as `block_moments` gives them."""

Column = np.ndarray[Any, np.dtype[np.float64]]

BLOCK = 4096
"""Weights per partial sum. Fixed, so that a statistic does not depend on chunking, threads or tensor order."""

SCRATCH = 512 * BLOCK
"""Weights that are summed at a time: enough that threads seldom wait for each other at the interpreter's lock."""

_FAR = 4.0


def new_scratch(num_values: int = SCRATCH) -> Tensor:
    """Memory for `block_moments` to compute in, for a caller with many tensors: fresh memory is slow to touch."""
    return torch.empty(num_values, dtype=torch.float32)


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


def block_moments(tensor: Tensor, *, scratch: Tensor | None = None, into: Moments | None = None) -> Moments:
    """Count, mean and sum of squared deviations of each block of 4096 weights.

    A block is summed in float32, to about seven digits (float64 weights in float64), and blocks are combined by exact
    summation. The blocks are fixed by the tensor alone, so a statistic is the same to the last bit however the tensor
    was cut into chunks (at multiples of the block) and whatever the thread count. A value that is not finite leaves a
    mean that is not.

    Args:
        tensor: any floating point tensor.
        scratch: from `new_scratch`, to widen weights of 16 bits in.
        into: from `empty_moments`, or a slice of it, to write to.

    >>> counts, means, squares = block_moments(torch.tensor([1.0, 3.0]))
    >>> (counts.item(), means.item(), squares.item())
    (2.0, 2.0, 2.0)
    """
    flat = tensor.detach().reshape(-1)
    if into is None:
        into = empty_moments(flat.numel())
    if scratch is None and flat.dtype.itemsize == 2:
        scratch = new_scratch(min(flat.numel(), SCRATCH))
    _, means, squares = columns = [column.numpy() for column in into]
    whole = flat.numel() // BLOCK * BLOCK
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, whole, SCRATCH):
            stop = min(start + SCRATCH, whole)
            blocks = slice(start // BLOCK, stop // BLOCK)
            _sum(flat[start:stop], scratch, means[blocks], squares[blocks])
        if whole < flat.numel():
            _sum(flat[whole:], scratch, means[whole // BLOCK :], squares[whole // BLOCK :])
        _centre(flat, *columns)
    return into


def _sum(values: Tensor, scratch: Tensor | None, sums: Column, squares: Column) -> None:
    """Sum and sum of squares of blocks of equal length: products of vectors, which BLAS does without another copy.

    They go through numpy because torch hands the interpreter's lock over at every call, however small, and threads that
    stream a file then wait for each other: two threads took twice as long as one.
    """
    if values.device.type != "cpu":
        rows = values.to(torch.promote_types(values.dtype, torch.float32)).view(len(sums), -1)
        sums[:], squares[:] = rows.sum(dim=1).cpu().numpy(), rows.square().sum(dim=1).cpu().numpy()
        return
    if values.dtype.itemsize == 2 and scratch is not None:
        values = scratch[: values.numel()].copy_(values)
    table = values.numpy().reshape(len(sums), 1, -1)
    ones = np.ones((table.shape[2], 1), dtype=table.dtype)
    sums[:] = np.matmul(table, ones)[:, 0, 0]
    squares[:] = np.matmul(table, table.transpose(0, 2, 1))[:, 0, 0]


def _centre(flat: Tensor, counts: Column, means: Column, squares: Column) -> None:
    """Turn the sums into means and the sums of squares into those of squared deviations, mostly without another pass.

    `sum (w - m)^2 = sum w^2 - n m^2` loses a factor of 4 in precision where it is a quarter of `sum w^2`. Blocks where
    it is less, whose mean is 1.7 times their spread, and blocks whose squares leave the range of the numbers they were
    summed in are taken again in float64, about their mean.
    """
    limits = torch.finfo(torch.promote_types(flat.dtype, torch.float32))
    means /= counts
    deviations = squares - counts * means * means
    within = (squares > limits.tiny / limits.eps**2) & (squares < np.inf)  # neither is so for NaN
    good = within & (deviations * _FAR >= squares)
    squares[:] = deviations
    for index in np.flatnonzero(~good):
        block = flat[index * BLOCK : (index + 1) * BLOCK].double()
        mean = block.mean()
        means[index], squares[index] = mean.item(), (block - mean).square().sum().item()
