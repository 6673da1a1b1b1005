"""Changes that never write infinity: what passes a dtype is refused, and looked for only where it could be."""

import torch
from torch import Tensor

from quietnn.checkpoints.base import Change
from quietnn.errors import InvalidWeights
from quietnn.moments import Moments


def kept_finite(name: str, change: Change, *, factor: float, reach: float) -> Change:
    """The change of a tensor that raises where a result is not finite; most tensors can have none and cost nothing.

    Args:
        name: the tensor's, for the message.
        change: what to do.
        factor: what values are multiplied by on the way.
        reach: no result is further from zero.

    Raises:
        InvalidWeights: when the change is made, if a result is infinite or not a number.
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
