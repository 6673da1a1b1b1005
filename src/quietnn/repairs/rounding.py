"""Weights that were rounded, told from weights with noise on them."""

import math
from typing import Any

import torch
from torch import Tensor

from quietnn.noise import mean_of, noise_of_each
from quietnn.observation import Observation

_NEAR = 0.5
"""Rounding leaves errors of a standard deviation of 0.29 of a step; noise is finer than half of its own."""

_CHANNELS = 32
"""Output channels that are tested, evenly spaced."""


def are_rounded(observation: Observation[Any, Any]) -> bool:
    """Whether an observation tells that weights were rounded, else whether most are in tensors on a grid.

    >>> are_rounded(Observation({"a.weight": torch.randn(8, 50).round(), "a.bias": torch.randn(8)}, 0.09))
    True
    """
    if observation.rounded is not None:
        return observation.rounded
    weights, by_tensor = observation.weights, noise_of_each(observation.known_noise, observation.weights)
    rounded = [
        name
        for name, tensor in weights.items()
        if tensor.ndim > 1 and is_on_a_grid(tensor, math.sqrt(mean_of(by_tensor[name])))
    ]
    return 2 * sum(weights[name].numel() for name in rounded) > sum(tensor.numel() for tensor in weights.values())


@torch.no_grad()
def is_on_a_grid(weight: Tensor, error_std: float) -> bool:
    """Whether the weights of most output channels share few values that lie further apart than their error is long.

    Noise leaves no two weights alike, up to the digits of a short number format, whose steps are finer than noise is.

    >>> weight = torch.randn(8, 50, generator=torch.Generator().manual_seed(0))
    >>> is_on_a_grid(weight, 0.3), is_on_a_grid(weight.bfloat16(), 0.3), is_on_a_grid(weight.round(), 0.3)
    (False, False, True)
    """
    rows = weight.flatten(1)[:: max(len(weight) // _CHANNELS, 1)]
    return sum(_shares_values(row, error_std) for row in rows) > len(rows) / 2


def _shares_values(weights: Tensor, error_std: float) -> bool:
    steps = weights.double().sort().values.diff()
    steps = steps[steps > 0]
    if len(steps) + 1 > len(weights) / 2:
        return False
    return len(steps) == 0 or float(steps.median()) > _NEAR * error_std
