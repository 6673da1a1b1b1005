"""Changes of tensors, stretch by stretch, that never write infinity: what passes a dtype is refused."""

from collections.abc import Callable

import torch
from torch import Tensor

from quietnn.errors import InvalidWeights
from quietnn.moments import Moments

Change = Callable[[Tensor, int], None]
"""Changes a flat stretch of a tensor in place, given the stretch and its start in the tensor."""

Look = Callable[[str, Tensor, int], None]
"""Sees a flat stretch of a tensor, given the tensor's name, the stretch and its start in the tensor."""


def replaced_by(tensor: Tensor) -> Change:
    """A change of a tensor to another one."""
    flat = tensor.detach().reshape(-1)

    def change(values: Tensor, start: int) -> None:
        values.copy_(flat[start : start + values.numel()])

    return change


def kept_finite(name: str, change: Change, *, factor: float, reach: float) -> Change:
    """The change of a tensor that raises where a result is not finite; most tensors can have none and cost nothing.

    Values are multiplied by `factor` on the way, and no result is further from zero than `reach`.
    """

    def checked(values: Tensor, start: int) -> None:
        computed, limit = torch.promote_types(values.dtype, torch.float32), torch.finfo(values.dtype).max
        if abs(factor) <= torch.finfo(computed).max:  # torch takes no larger one
            change(values, start)
            if reach <= limit or bool(torch.isfinite(values).all()):
                return
        raise InvalidWeights(
            f"{name} is {values.dtype}, whose largest number is {limit:.4g}, and its new values pass that (they may "
            f"reach {reach:.4g}); take less noise or smaller temperatures, or a wider dtype"
        )

    return checked


def largest_magnitude(moments: Moments) -> float:
    """A bound on the magnitudes behind block moments: no value is further from its block's mean than `sqrt(squares)`.

    >>> import torch
    >>> largest_magnitude((torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([4.0]))) >= 3.0
    True
    """
    _, means, squares = moments
    return 1.01 * float((means.abs() + squares.clamp_min(0.0).sqrt()).max())  # the sums are rounded
