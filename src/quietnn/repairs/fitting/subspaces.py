"""What may move where the weights stay, as isometries: low-rank additions, factors of outputs, both, and vectors.

Whoever cannot rewrite weights, as on an analog chip, can still add something beside them. In whitened units `u` (see
`whitened.py`) a low-rank addition is `u = v Q` with orthonormal rows `Q`, and a factor for each output is
`u = diag(v) R` with the received rows at unit length. Both keep lengths, `|u| = |v|`: the objective, the trust region
and the steps are those of the whole posterior, with `v` in place of `u`.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from quietnn.repairs.beside.part import Part

_TINY = 1e-30
"""Below the length of every row that is not zero."""


class Subspace(Protocol):
    """An isometry from the numbers that move to whitened weights, as rows: one row for each output."""

    def origin(self) -> Tensor:
        """The numbers at which nothing is added."""
        ...

    def expand(self, moved: Tensor) -> Tensor:
        """`u` of the numbers."""
        ...

    def project(self, gradient: Tensor) -> Tensor:
        """The gradient in the numbers, from that in `u`."""
        ...

    def told(self, moved: Tensor) -> Part:
        """What stands beside the received weights, from the numbers in units of the weights; of a vector nothing."""
        ...


@dataclass(frozen=True)
class LowRank:
    """`u = v Q`, with the orthonormal rows `Q` of `basis`.

    >>> space = LowRank(torch.tensor([[0.0, 1.0]]), num_rows=2)
    >>> space.expand(torch.tensor([[3.0], [4.0]]))
    tensor([[0., 3.],
            [0., 4.]])
    """

    basis: Tensor
    num_rows: int

    def origin(self) -> Tensor:
        return self.basis.new_zeros(self.num_rows, len(self.basis))

    def expand(self, moved: Tensor) -> Tensor:
        return moved @ self.basis

    def project(self, gradient: Tensor) -> Tensor:
        return gradient @ self.basis.T

    def told(self, moved: Tensor) -> Part:
        """`(B, A)` of `R + B A`."""
        return Part(low_rank=(moved, self.basis))


@dataclass(frozen=True)
class Scales:
    """`u = diag(v) R`, with the received rows `R` at unit length.

    >>> Scales.of(torch.tensor([[3.0, 4.0]])).expand(torch.tensor([5.0]))
    tensor([[3., 4.]])
    """

    rows: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, received: Tensor) -> "Scales":
        return cls(normalize(received, dim=1), received.norm(dim=1))

    def origin(self) -> Tensor:
        return self.rows.new_zeros(len(self.rows))

    def expand(self, moved: Tensor) -> Tensor:
        return moved[:, None] * self.rows

    def project(self, gradient: Tensor) -> Tensor:
        return (gradient * self.rows).sum(1)

    def told(self, moved: Tensor) -> Part:
        """The factor of each row; a row of zeros has none."""
        return Part(1.0 + self.relative(moved)[:, None])

    def relative(self, moved: Tensor) -> Tensor:
        """By what fraction of its length each row moves."""
        return torch.where(self.lengths > 0, moved / self.lengths.clamp_min(_TINY), torch.zeros_like(moved))


@dataclass(frozen=True)
class ScaledLowRank:
    """Both, `u = v Q + diag(s) P`, with the received rows at unit length and free of the directions `Q` as `P`.

    >>> space = ScaledLowRank.of(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 5.0]]))
    >>> space.expand(torch.tensor([[3.0, 4.0]]))
    tensor([[4., 3.]])
    """

    low_rank: LowRank
    scales: Scales
    received: Tensor

    @classmethod
    def of(cls, basis: Tensor, received: Tensor) -> "ScaledLowRank":
        return cls(LowRank(basis, len(received)), Scales.of(received - received @ basis.T @ basis), received)

    def origin(self) -> Tensor:
        return torch.cat([self.low_rank.origin(), self.scales.origin()[:, None]], 1)

    def expand(self, moved: Tensor) -> Tensor:
        return self.low_rank.expand(moved[:, :-1]) + self.scales.expand(moved[:, -1])

    def project(self, gradient: Tensor) -> Tensor:
        return torch.cat([self.low_rank.project(gradient), self.scales.project(gradient)[:, None]], 1)

    def told(self, moved: Tensor) -> Part:
        """A factor scales what lies along `Q`, too; `B` takes that off."""
        basis, relative = self.low_rank.basis, self.scales.relative(moved[:, -1])[:, None]
        return Part(1.0 + relative, (moved[:, :-1] - relative * (self.received @ basis.T), basis))


@dataclass(frozen=True)
class Transposed:
    """A subspace of a matrix whose outputs run along its columns."""

    space: Subspace

    def origin(self) -> Tensor:
        return self.space.origin()

    def expand(self, moved: Tensor) -> Tensor:
        return self.space.expand(moved).T

    def project(self, gradient: Tensor) -> Tensor:
        return self.space.project(gradient.T)

    def told(self, moved: Tensor) -> Part:
        part = self.space.told(moved)
        low_rank = None if part.low_rank is None else (part.low_rank[1].T, part.low_rank[0].T)
        return Part(None if part.scale is None else part.scale.T, low_rank)


@dataclass(frozen=True)
class Whole:
    """`u = v`: all of a vector, such as a bias."""

    at: Tensor

    def origin(self) -> Tensor:
        return torch.zeros_like(self.at)[None]

    def expand(self, moved: Tensor) -> Tensor:
        return moved.clone()

    def project(self, gradient: Tensor) -> Tensor:
        return gradient

    def told(self, moved: Tensor) -> Part:
        return Part()
