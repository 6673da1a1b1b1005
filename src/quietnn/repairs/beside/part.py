"""What stands beside one matrix: a factor for each output, and an addition of low rank."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.repairs.beside.where import rows_of
from quietnn.repairs.kinds import is_transposed_linear
from quietnn.watching.batch_moments import wide


@dataclass(frozen=True, eq=False)
class Part:
    """`scale * R + B A` in the place of a matrix `R`, which stays.

    Attributes:
        scale: a factor for each output, or one for all, shaped to multiply `R`: `(outputs, 1, ...)` or `(1, 1, ...)`.
        low_rank: `(B, A)`; their product is `R.flatten(1)` in shape.

    >>> part = Part(torch.tensor([[2.0], [1.0]]), (torch.ones(2, 1), torch.tensor([[0.0, 1.0]])))
    >>> part.applied(torch.eye(2))
    tensor([[2., 1.],
            [0., 2.]])
    """

    scale: Tensor | None = None
    low_rank: tuple[Tensor, Tensor] | None = None

    def applied(self, weight: Tensor) -> Tensor:
        """What the network computes with, merged."""
        merged = wide(weight)
        if self.scale is not None:
            merged = self.scale.to(merged) * merged
        if self.low_rank is not None:
            merged = merged + self.added(merged)
        return merged.to(weight.dtype)

    def added(self, weight: Tensor) -> Tensor:
        """`B A` in the shape and kind of a weight; zero where there is none."""
        if self.low_rank is None:
            return torch.zeros_like(weight)
        up, down = self.low_rank
        return (up.to(weight) @ down.to(weight)).view_as(weight)

    def behind(self, gain: float, offset: float, weight: Tensor, axis: int | None) -> "Part":
        """The same beside the weights of a channel `r = gain R + offset`: an offset is one more rank, exactly."""
        scale = self.scale if self.scale is not None else ones(weight, axis)
        scale, low_rank = scale / gain, self.low_rank
        if offset:
            columns = wide(rows_of(weight))
            up, down = columns.new_full((len(columns), 1), -offset), columns.new_ones(1, columns.shape[1])
            if axis == 1:
                down = down * scale.reshape(1, -1)
            else:
                up = up * scale.reshape(-1, 1)
            low_rank = (up, down) if low_rank is None else _joined(low_rank, (up, down))
        is_same = gain == 1 and self.scale is None
        return Part(None if is_same and not offset else scale, low_rank)


def ones(weight: Tensor, axis: int | None) -> Tensor:
    """A factor of one for each output, shaped to multiply a weight."""
    return wide(weight).new_ones([size if place == axis else 1 for place, size in enumerate(weight.shape)])


def _joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat([one[0].to(other[0]), other[0]], 1), torch.cat([one[1].to(other[1]), other[1]])


def output_axes(network: nn.Module) -> dict[str, int | None]:
    """Of each matrix, the axis of its outputs: the first, but in transformers' Conv1D.

    An embedding looks words up and has none, nor has a head that is tied to it: one factor for all serves them.

    >>> output_axes(nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 3)))
    {'0.weight': None, '1.weight': 0}
    """
    axes: dict[int, int | None] = {}
    for layer in network.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            axes[id(layer.weight)] = None
        elif is_transposed_linear(layer):
            axes.setdefault(id(layer.weight), 1)
    return {name: axes.get(id(one), 0) for name, one in network.named_parameters() if one.dim() > 1}
