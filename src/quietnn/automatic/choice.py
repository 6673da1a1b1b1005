"""Which candidate the evidence is for, and what accuracy to expect of a network chosen so."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quietnn.automatic.labelled import Verdict

BASELINE = "ml"
"""What nothing chosen may be worse than: the weights as they came."""

_Z = 1.959964
"""97.5 per cent of a standard Gaussian lies below."""


def choose(verdicts: Mapping[str, Verdict], positions: Tensor | None = None) -> str:
    """The simplest candidate within one standard error of the best, and at least as good as ML.

    Losses are compared in pairs, example by example, so what all candidates find hard does not count as error.

    Args:
        verdicts: by name, from the simplest to the most elaborate, ML among them.
        positions: of the examples to go by; left out, all.

    >>> ml = Verdict(torch.tensor([2.0, 2.1, 2.2, 2.3]), torch.zeros(4))
    >>> better = Verdict(torch.tensor([1.0, 1.2, 1.1, 1.3]), torch.ones(4))
    >>> hardly = Verdict(torch.tensor([1.1, 1.1, 1.0, 1.3]), torch.ones(4))
    >>> choose({"ml": ml, "calibrated": better, "posterior": hardly})
    'calibrated'
    """
    losses = {
        name: verdict.losses if positions is None else verdict.losses[positions] for name, verdict in verdicts.items()
    }
    means = {name: float(values.mean()) for name, values in losses.items()}
    best = min(means, key=lambda name: means[name])
    if not math.isfinite(means[best]):
        return BASELINE
    for name, values in losses.items():
        if means[name] <= min(means[best] + _error(values - losses[best]), means[BASELINE]):
            return name
    return best


def accuracy_of_choice(verdicts: Mapping[str, Verdict], halves: Sequence[Tensor]) -> float:
    """The accuracy of networks chosen in this way: on each part by what the others say, never by the part itself.

    The best of several looks better than it is on the examples that made it the best; this does not.
    """
    num_right = 0.0
    for index, half in enumerate(halves):
        others = torch.cat([other for place, other in enumerate(halves) if place != index])
        num_right += float(verdicts[choose(verdicts, others)].right[half].sum())
    return num_right / sum(len(half) for half in halves)


def wilson_interval(accuracy: float, num_examples: int) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson 1927), which stays within 0 and 1 and is honest near them.

    >>> low, high = wilson_interval(1.0, 100)
    >>> round(low, 3), high
    (0.963, 1.0)
    """
    shrink = 1 / (1 + _Z**2 / num_examples)
    centre = shrink * (accuracy + _Z**2 / (2 * num_examples))
    width = shrink * _Z * math.sqrt(accuracy * (1 - accuracy) / num_examples + (_Z / (2 * num_examples)) ** 2)
    return max(centre - width, 0.0), min(centre + width, 1.0)


def _error(differences: Tensor) -> float:
    """The standard error of a mean of differences; none where it cannot be told."""
    error = float(differences.std()) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return error if math.isfinite(error) else 0.0
