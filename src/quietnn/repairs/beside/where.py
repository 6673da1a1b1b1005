"""Where a repair may act: on the weights themselves, or only beside them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from torch import Tensor, nn

from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.weights import Weights

TRAINABLE = ("weights", "adapter", "digital")
"""What may change: every noisy weight; a low-rank addition beside each matrix and all that is digital; or what is
digital alone: normalisation, biases and a factor for each output."""

RANK = 8
"""The usual rank of a low-rank addition."""

SMALL = 0.0234
"""A small share of the parameters: what DoRA calibration of resistive memory adds (2.34 %)."""

MOST_RANK = 64
"""Directions of one matrix that a budget may be spent on."""


@dataclass(frozen=True)
class Where:
    """What a repair may change.

    Attributes:
        trainable: one of `TRAINABLE`.
        rank: of the addition beside each matrix; 8, or less in a small network, when not given.
        budget: in place of a rank, the share of the network's parameters that may stand beside it.

    >>> Where("adapter", rank=4).weights_stay, Where().weights_stay
    (True, False)
    """

    trainable: str = "weights"
    rank: int | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense on any network."""
        if self.trainable not in TRAINABLE:
            raise unknown_choice("trainable", self.trainable, TRAINABLE)
        for name, value in (("rank", self.rank), ("budget", self.budget)):
            if value is not None and self.trainable != "adapter":
                raise InvalidConfig(
                    f"{name} is {value!r}, and trainable is {self.trainable!r}; it is for an adapter: "
                    f"trainable='adapter', {name}={value!r}"
                )
        if self.rank is not None and self.budget is not None:
            raise InvalidConfig(f"rank={self.rank!r} and budget={self.budget!r} both tell the size; leave one out")
        is_share = isinstance(self.budget, Real) and not isinstance(self.budget, bool) and 0 < self.budget < 1
        if self.budget is not None and not is_share:
            raise InvalidConfig(f"budget is {self.budget!r}; give a share of the parameters from 0 to 1: budget=0.02")

    @property
    def weights_stay(self) -> bool:
        """Whether the received weights are left as they are."""
        return self.trainable != "weights"

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a repair that is told where to act."""
        return asdict(self)

    def check(self, received: object, weights: Weights) -> None:
        """Refuse what this network has no room for, before anything is run."""
        if not isinstance(received, nn.Module):
            raise InvalidConfig(
                f"trainable is {self.trainable!r}, which acts beside layers, and what arrived is a "
                f"{type(received).__name__}; load it first, model.load_state_dict(state), and give the model"
            )
        rank_within(self.rank, weights)

    def ranks(
        self, singular: Mapping[str, Tensor], weights: Weights, *, num_parameters: int, spent: int
    ) -> dict[str, int]:
        """The rank of the addition to each matrix: the same for all or, within a budget, by what a number buys.

        A matrix that is too small for the rank gets none. A budget goes to the directions of the largest
        `value^2 / (rows + columns)` first, whichever matrix they belong to.

        Args:
            singular: what the directions of each matrix are worth: singular values, the largest first.
            weights: all weights of the network, by name.
            num_parameters: of the network; the budget is a share of them.
            spent: numbers that stand beside already, scales, gains and biases.
        """
        shapes = {name: rows_of(weights[name]).shape for name in singular}
        if self.budget is None:
            rank = self.usual_rank(weights)
            return {name: rank for name, shape in shapes.items() if min(shape) > rank}
        left = int(self.budget * num_parameters) - spent
        if left < 0:
            raise InvalidConfig(
                f"budget is {self.budget:g} of {num_parameters} parameters, and scales, gains and biases alone are "
                f"{spent}; give more, budget={spent / num_parameters + 0.01:.3f}, or trainable='digital'"
            )
        by_price = sorted(
            (-(float(value) ** 2) / sum(shapes[name]), sum(shapes[name]), name)
            for name, values in singular.items()
            for value in values[: min(shapes[name]) - 1]
        )
        found = dict.fromkeys(singular, 0)
        for worth, price, name in by_price:
            if worth < 0 and price <= left:
                left -= price
                found[name] += 1
        return {name: rank for name, rank in found.items() if rank}

    def usual_rank(self, weights: Weights) -> int:
        """The rank that was asked for, or the usual one."""
        return rank_within(self.rank, weights)

    def most_rank(self, weights: Weights) -> int:
        """The largest rank that one addition may have."""
        return MOST_RANK if self.budget is not None else self.usual_rank(weights)


WEIGHTS = Where()
"""Every noisy weight may change."""


def rank_within(rank: int | None, weights: Weights) -> int:
    """The rank of additions to some weights: the usual one, or half of what the largest matrix has where that is less.

    Raises:
        InvalidConfig: if a rank is given that is no positive whole number, or that no matrix has room for.

    >>> import torch
    >>> rank_within(None, {"a": torch.zeros(6, 9)}), rank_within(2, {"a": torch.zeros(6, 9)})
    (3, 2)
    """
    largest = max((min(rows_of(tensor).shape) for tensor in weights.values() if tensor.dim() > 1), default=0)
    usual = max(min(RANK, largest // 2), 1)
    if rank is None:
        return usual
    if not isinstance(rank, int) or not 1 <= rank < max(largest, 2):
        raise InvalidConfig(
            f"rank is {rank!r}; the largest matrix has {largest} inputs or outputs, so it must be 1 to "
            f"{max(largest - 1, 1)}: rank={usual}"
        )
    return rank


def rows_of(tensor: Tensor) -> Tensor:
    """A weight as a matrix with a row for each index of its first axis; a vector is one row."""
    return tensor.flatten(1) if tensor.dim() > 1 else tensor[None]
