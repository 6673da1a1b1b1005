"""The step that gives ShuffleNet its name."""

import torch
from torch import Tensor


def shuffle_channels(left: Tensor, right: Tensor) -> Tensor:
    """Interleave the channels of two branches: `l0 r0 l1 r1 ...`.

    >>> left, right = torch.tensor([0, 1]).reshape(1, 2, 1, 1), torch.tensor([5, 6]).reshape(1, 2, 1, 1)
    >>> shuffle_channels(left, right).flatten().tolist()
    [0, 5, 1, 6]
    """
    return torch.stack((left, right), dim=2).flatten(1, 2)
