"""Whether a fit to some examples is worth having, judged on others."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from quietnn.repairs.fitting.scratch import Scratch
from quietnn.score import Split

_PARTS_OF_A_FOLD = 5

_STANDARD_ERRORS = 2.0
"""By how many standard errors a start has to be better than a fit to half of the examples."""


class Guard:
    """Networks side by side on labelled examples, those that were fitted to some of them on the others.

    Args:
        scratch: judges networks, and counts what that costs.
        splits: of the examples; each is held out once.
    """

    def __init__(self, scratch: Scratch, splits: Sequence[Split]) -> None:
        self._scratch = scratch
        self._splits = splits
        self._held_out = parts_of(splits)
        self._parts = [part for fold in self._held_out for part in fold]
        self._losses: dict[str, Tensor] = {}

    def judge(self, name: str, network: nn.Module) -> None:
        """Judge a network that has seen no labels, on all examples."""
        self._losses[name] = self._scratch.judge_parts(network, self._parts)

    def judge_fits(self, name: str, fit: Callable[[Tensor], nn.Module]) -> None:
        """Judge a way to fit networks to positions: each split by the network that did not see it."""
        folds = zip(self._splits, self._held_out, strict=True)
        self._losses[name] = torch.cat([self._scratch.judge_parts(fit(split.fit), parts) for split, parts in folds])

    @property
    def mean_losses(self) -> dict[str, float]:
        """The mean loss of everything that was judged."""
        return {name: mean_loss(losses, self._parts) for name, losses in self._losses.items()}

    def best(self, names: Iterable[str]) -> str:
        """The one with the smallest mean loss."""
        return min(names, key=self.mean_losses.__getitem__)

    def is_clearly_better(self, name: str, other: str) -> bool:
        """See `is_clearly_better`."""
        return is_clearly_better(self._losses[name], self._losses[other], self._parts)

    def is_worth_it(self, fit: str, start: str) -> bool:
        """See `is_worth_it`."""
        return is_worth_it(self._losses[fit], self._losses[start], self._parts)


def parts_of(splits: Sequence[Split]) -> list[list[Tensor]]:
    """The held-out positions of each split in a few parts, so that there are losses to compare and tell an error from.

    >>> from quietnn.score import folds
    >>> [[len(part) for part in parts] for parts in parts_of(folds(21, 2, seed=0))]
    [[3, 2, 2, 2, 2], [2, 2, 2, 2, 2]]
    """
    return [list(split.held_out.tensor_split(min(_PARTS_OF_A_FOLD, len(split.held_out)))) for split in splits]


def mean_loss(losses: Tensor, parts: Sequence[Tensor]) -> float:
    """The mean loss of all examples from the mean losses of parts of them."""
    return sum(float(loss) * len(part) for loss, part in zip(losses, parts, strict=True)) / sum(map(len, parts))


def is_worth_it(fit: Tensor, start: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether a fit is to be used in place of a start, from the losses of both on parts of the examples.

    The fits that are judged have seen half of the examples and taken half of the steps; the one that is used sees all
    of them. So a draw goes to the fit: a start has to be better by more than two standard errors of the difference.

    >>> import torch
    >>> parts, start = [torch.arange(2)] * 4, torch.tensor([1.0, 2.0, 1.0, 2.0])
    >>> is_worth_it(start + torch.tensor([0.3, -0.3, 0.3, -0.2]), start, parts), is_worth_it(start + 0.1, start, parts)
    (True, False)
    """
    return not is_clearly_better(start, fit, parts, standard_errors=_STANDARD_ERRORS)


def is_clearly_better(losses: Tensor, others: Tensor, parts: Sequence[Tensor], *, standard_errors: float = 1.0) -> bool:
    """Whether some losses are smaller than others by more than their difference may be by chance.

    >>> import torch
    >>> parts, some = [torch.arange(2)] * 4, torch.tensor([1.0, 2.0, 1.0, 2.0])
    >>> is_clearly_better(some - 0.1, some, parts), is_clearly_better(some, some, parts)
    (True, False)
    """
    other = mean_loss(others, parts)
    if not math.isfinite(other):
        return True
    gap = other - mean_loss(losses, parts)
    return gap > 0 and gap > standard_errors * float((losses - others).std()) / math.sqrt(len(parts))
