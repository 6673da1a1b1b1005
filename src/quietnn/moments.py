"""Mean and spread of long rows of weights, block by block: the same bits in any chunks, any order, on any threads."""

import numpy as np
import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor, Tensor]
"""Count, mean and sum of squared deviations of blocks of weights, as `block_moments` gives them."""

BLOCK = 4096
"""Weights per partial sum. Fixed, so that a statistic does not depend on chunking, threads or tensor order."""

SCRATCH = 128 * BLOCK
"""Weights that are widened to float64 at a time; fewer and the calls cost more than the sums."""

_FAR = 16.0


def new_scratch(num_values: int = SCRATCH, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Memory for `block_moments` to compute in, for a caller with many tensors: fresh memory is slow to touch."""
    narrow, wide = (torch.empty(num_values, dtype=dtype, device=device) for dtype in (torch.float32, torch.float64))
    return narrow, wide


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


def block_moments(
    tensor: Tensor, *, scratch: tuple[Tensor, Tensor] | None = None, into: Moments | None = None
) -> Moments:
    """Count, mean and sum of squared deviations of each block of 4096 weights, in float64.

    The blocks are fixed by the tensor alone and are combined by exact summation, so a statistic is the same to
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
    _, means, squares = into
    for start in range(0, flat.numel(), SCRATCH):
        rows = _widened(flat[start : start + SCRATCH], scratch)
        first, num_whole = start // BLOCK, rows.numel() // BLOCK
        if num_whole:
            whole = slice(first, first + num_whole)
            _fill(rows[: num_whole * BLOCK].view(-1, BLOCK), means[whole], squares[whole])
        if rows.numel() % BLOCK:
            _fill(rows[num_whole * BLOCK :].view(1, -1), means[first + num_whole :], squares[first + num_whole :])
    return into


def _widened(values: Tensor, scratch: tuple[Tensor, Tensor]) -> Tensor:
    """The values in float64; float16 by way of float32, which is five times as fast."""
    narrow, wide = (memory[: values.numel()] for memory in scratch)
    return wide.copy_(narrow.copy_(values) if values.dtype == torch.float16 else values)


def _fill(rows: Tensor, means: Tensor, squares: Tensor) -> None:
    """Mean and sum of squared deviations of each row, the latter without another pass where that is as good.

    `sum (w - m)^2 = sum w^2 - n m^2` loses a factor of 16 in precision, one digit of sixteen, where it is a sixteenth
    of `sum w^2`; rows where it is less, whose mean is four times their spread, are taken again about their mean.
    """
    torch.mean(rows, dim=1, out=means)
    about_zero = _sums_of_squares(rows)
    torch.addcmul(about_zero, means, means, value=-rows.shape[1], out=squares)
    near = squares * _FAR >= about_zero  # not so for NaN, which values past the root of the largest number leave
    if not near.all():
        squares[~near] = _sums_of_squares(rows[~near] - means[~near, None])


def _sums_of_squares(rows: Tensor) -> Tensor:
    """The sum of squares of each row: a product with itself, which BLAS does in one pass without another copy."""
    if rows.device.type != "cpu":
        return rows.square().sum(dim=1)
    values = rows.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(np.matmul(values[:, None, :], values[:, :, None])[:, 0, 0])
