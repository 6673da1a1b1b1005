"""White noise in proportion to the largest weight of each row, column or tensor, as analog-training papers have it.

A converter's range fits the largest weight of what shares it, and its noise is a share of that range: `z ~ N(0, (c max
|w|)^2)`. Analog foundation models (Buechel et al. 2025) are tested with a few per cent a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.channels.base import Arrived, ByTensor, check_number
from quietnn.channels.randomness import standard_normal
from quietnn.errors import unknown_choice

SHARING = ("row", "column", "tensor")
"""What shares a largest weight: all inputs of an output, all outputs of an input, or all."""


@dataclass(frozen=True)
class RelativeNoise(ByTensor):
    """Noise whose standard deviation is a fraction of the largest weight of its row.

    Attributes:
        fraction: of the largest weight.
        by: what shares it: `row`, `column` or `tensor`. A vector is one row.

    >>> weights = {"w": torch.tensor([[1.0, -2.0], [0.1, 0.2]])}
    >>> RelativeNoise(0.5).transmit(weights, seed=0).noise_variance["w"]
    tensor([[1.0000],
            [0.0100]])
    """

    fraction: float
    by: str = "row"

    def __post_init__(self) -> None:
        """Refuse what is no fraction, and an unknown way to share."""
        check_number("fraction", self.fraction, 0, 10)
        if self.by not in SHARING:
            raise unknown_choice("by", self.by, SHARING)

    def send(self, tensor: Tensor, *, seed: int, name: str) -> Arrived:
        """A copy with noise on it, drawn by seed and tensor name."""
        values = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
        std = self.fraction * self._largest(values)
        noise = standard_normal(values.numel(), seed=seed, name=name).view(values.shape).to(values)
        return (values + std * noise).to(tensor.dtype), (std.square() if std.dim() else float(std) ** 2, 1.0, 0.0)

    def _largest(self, values: Tensor) -> Tensor:
        """In a shape that goes with the tensor's."""
        if self.by == "tensor" or values.dim() < 2:
            return values.abs().amax() if values.numel() else values.new_zeros(())
        kept = 0 if self.by == "row" else 1
        return values.abs().amax([axis for axis in range(values.dim()) if axis != kept], keepdim=True)
