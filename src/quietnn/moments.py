"""Mean and spread of long rows of weights, block by block: the same bits in any chunks, any order, on any threads."""

import numpy as np
import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor, Tensor]
"""Count, mean and sum of squared deviations of blocks of weights, as `block_moments` gives them."""

BLOCK = 4096
"""Weights per partial sum. Fixed, so that a statistic does not depend on chunking, threads or tensor order."""

SCRATCH = 32 * BLOCK
"""Weights that are widened at a time: enough to outweigh the calls, few enough to stay in the processor's cache."""

_FAR = 4.0


def new_scratch(num_values: int = SCRATCH, *, device: torch.device | None = None) -> Tensor:
    """Memory for `block_moments` to compute in, for a caller with many tensors: fresh memory is slow to touch."""
    return torch.empty(8 * num_values, dtype=torch.uint8, device=device)


def empty_moments(num_values: int, *, device: torch.device | None = None) -> Moments:
    """Room for the moments of a tensor, with the counts filled in.

    >>> empty_moments(5000)[0].tolist()
    [4096.0, 904.0]
    """
    num_blocks = -(-num_values // BLOCK)
    counts, means, squares = (torch.zeros(num_blocks, dtype=torch.float64, device=device) for _ in range(3))
    counts.fill_(BLOCK)
    if num_values % BLOCK:
        counts[-1] = num_values % BLOCK
    return counts, means, squares


def block_moments(tensor: Tensor, *, scratch: Tensor | None = None, into: Moments | None = None) -> Moments:
    """Count, mean and sum of squared deviations of each block of 4096 weights, in float64.

    Weights of 16 bits are summed in float32 within a block, to about seven digits where they themselves have two or
    three. The blocks are fixed by the tensor alone and are combined by exact summation, so a statistic is the same to
    the last bit however the tensor was cut into chunks (at multiples of the block) and whatever the thread count.
    A value that is not finite leaves a mean that is not.

    Args:
        tensor: any floating point tensor.
        scratch: from `new_scratch`, to compute in.
        into: from `empty_moments`, or a slice of it, to write to.

    >>> counts, means, squares = block_moments(torch.tensor([1.0, 3.0]))
    >>> (counts.item(), means.item(), squares.item())
    (2.0, 2.0, 2.0)
    """
    flat = tensor.detach().reshape(-1)
    if into is None:
        into = empty_moments(flat.numel(), device=flat.device)
    if scratch is None:
        scratch = new_scratch(min(flat.numel(), SCRATCH), device=flat.device)
    wide = scratch.view(torch.float32 if flat.dtype.itemsize == 2 else torch.float64)
    _, means, squares = into
    whole = flat.numel() // BLOCK * BLOCK
    for start in range(0, whole, SCRATCH):
        stop = min(start + SCRATCH, whole)
        blocks = slice(start // BLOCK, stop // BLOCK)
        _sum(flat[start:stop], wide, means[blocks], squares[blocks])
    if whole < flat.numel():
        _sum(flat[whole:], wide, means[whole // BLOCK :], squares[whole // BLOCK :])
    _centre(flat, into, torch.finfo(wide.dtype))
    return into


def _sum(values: Tensor, wide: Tensor, sums: Tensor, squares: Tensor) -> None:
    """Sum and sum of squares of blocks of equal length.

    Both are products of vectors, which BLAS does without another copy. They go through numpy because torch hands the
    interpreter's lock over at every call, however small, and threads that stream a file then wait for each other.
    """
    rows = wide[: values.numel()].copy_(values)
    if rows.device.type != "cpu":
        rows = rows.view(len(sums), -1)
        sums.copy_(rows.sum(dim=1))
        squares.copy_(rows.square().sum(dim=1))
        return
    table = rows.numpy().reshape(len(sums), 1, -1)
    ones = np.ones((table.shape[2], 1), dtype=table.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sums.numpy()[:] = np.matmul(table, ones)[:, 0, 0]
        squares.numpy()[:] = np.matmul(table, table.transpose(0, 2, 1))[:, 0, 0]


def _centre(flat: Tensor, moments: Moments, range_: torch.finfo) -> None:
    """Turn the sums into means and the sums of squares into those of squared deviations, mostly without another pass.

    `sum (w - m)^2 = sum w^2 - n m^2` loses a factor of 4 in precision where it is a quarter of `sum w^2`. Blocks where
    it is less, whose mean is 1.7 times their spread, and blocks whose squares leave the range of the numbers they were
    summed in are taken again in float64, about their mean.
    """
    counts, means, squares = moments
    means.div_(counts)
    deviations = torch.addcmul(squares, counts * means, means, value=-1)
    within = (squares > range_.tiny / range_.eps**2) & (squares < torch.inf)  # neither is so for NaN
    good = within & (deviations * _FAR >= squares)
    squares.copy_(deviations)
    for index in torch.nonzero(~good).flatten().tolist():
        block = flat[index * BLOCK : (index + 1) * BLOCK].double()
        means[index] = block.mean()
        squares[index] = (block - means[index]).square().sum()
