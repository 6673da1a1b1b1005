"""Thirty careful steps: Adam with one cycle of the step size, which takes back steps onto losses that overflow."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_BETAS = (0.9, 0.99)
_RISE = 0.3


def one_cycle(step: int, num_steps: int) -> float:
    """The step size relative to its peak: up along a cosine for three tenths of the way, then down to zero.

    >>> [round(one_cycle(step, 10), 2) for step in (0, 2, 3, 6, 9)]
    [0.07, 0.93, 0.99, 0.5, 0.01]
    """
    progress = (step + 0.5) / num_steps
    rise = min(progress / _RISE, 1.0)
    fall = max((progress - _RISE) / (1.0 - _RISE), 0.0)
    return 0.5 * (1.0 - math.cos(math.pi * rise)) * 0.5 * (1.0 + math.cos(math.pi * fall))


def descend(
    point: Sequence[Tensor],
    gradient: Callable[[], tuple[float, Sequence[Tensor]]],
    *,
    num_steps: int,
    step_size: float,
    project: Callable[[], None] = lambda: None,
    after_step: Callable[[int], None] = lambda step: None,
) -> tuple[float, ...]:
    """Walk downhill from `point`, in place, and return the loss met at every step.

    Where a loss or gradient is not finite, the step that led there is taken back, the step size is halved and the
    moments start anew. At a start that is not finite there is no direction to go, and the point stays.

    Args:
        point: the tensors to change.
        gradient: the loss at the point as it is, and its gradient in each tensor.
        num_steps: how many gradients to take.
        step_size: the peak step of every coordinate.
        project: brings the point back into its feasible region, in place.
        after_step: called with the number of each step that was taken.
    """
    optimiser = torch.optim.Adam(point, lr=step_size, betas=_BETAS, eps=1e-12)
    losses: list[float] = []
    shrink, safe = 1.0, [tensor.clone() for tensor in point]
    for step in range(num_steps):
        loss, gradients = gradient()
        finite = math.isfinite(loss) and all(bool(torch.isfinite(one).all()) for one in gradients)
        losses.append(loss if finite else math.inf)
        if not finite:
            if step == 0:
                break
            _copy(safe, point)
            shrink /= 2.0
            optimiser.state.clear()
            continue
        _copy(point, safe)
        for tensor, direction in zip(point, gradients, strict=True):
            tensor.grad = direction
        for group in optimiser.param_groups:
            group["lr"] = step_size * shrink * one_cycle(step, num_steps)
        optimiser.step()
        with torch.no_grad():
            project()
        after_step(step)
    return tuple(losses)


@torch.no_grad()
def _copy(source: Sequence[Tensor], sink: Sequence[Tensor]) -> None:
    for one, other in zip(source, sink, strict=True):
        other.copy_(one)
