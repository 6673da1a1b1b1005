"""Examples split into those to fit on and those to judge by."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig


@dataclass(frozen=True)
class Split:
    """Positions to fit on and positions held out as a guard against overfitting."""

    fit: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, num_examples: int, held_out: float, *, seed: int) -> "Split":
        """A random split; each side gets at least one example.

        >>> split = Split.of(10, 0.2, seed=0)
        >>> len(split.fit), len(split.held_out)
        (8, 2)
        """
        if num_examples < 2:
            raise InvalidConfig(f"num_examples is {num_examples}; fitting with a held-out part needs 2 or more")
        if not 0 < held_out < 1:
            raise InvalidConfig(f"held_out is {held_out}; it must be a fraction between 0 and 1, for example 0.2")
        num_held_out = min(max(round(held_out * num_examples), 1), num_examples - 1)
        order = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed))
        return cls(order[num_held_out:], order[:num_held_out])


def folds(num_examples: int, num_folds: int, *, seed: int) -> list[Split]:
    """Splits in which every example is held out once, from the fit on all others.

    >>> [len(split.held_out) for split in folds(5, 2, seed=0)]
    [3, 2]
    """
    if not 2 <= num_folds <= num_examples:
        raise InvalidConfig(f"num_folds is {num_folds}; it must be from 2 to the number of examples, {num_examples}")
    parts = torch.randperm(num_examples, generator=torch.Generator().manual_seed(seed)).tensor_split(num_folds)
    return [Split(torch.cat([*parts[:index], *parts[index + 1 :]]), part) for index, part in enumerate(parts)]
