"""Priors of the tensors of a group, each told with an error: how far a tensor goes its own way.

A tensor with a prior of its own is better off where it differs from the others by more than it is misjudged. Mean and
variance of a tensor's clean weights are told with the errors (the inverse of Fisher's information)

    e_mu = 1 / sum_i 1 / (sigma_w^2 + v_i)        e_s = 2 / sum_i 1 / (sigma_w^2 + v_i)^2

Take the true values of the tensors as spread about a centre with a variance `tau^2`. What was told of a tensor, `x_t`,
then goes towards the centre by as much as it is uncertain (empirical Bayes),

    x_t' = centre + tau^2 / (tau^2 + e_t) (x_t - centre)

and `tau^2` shows itself in how much the tensors differ beyond their errors (a random effect, Paule and Mandel 1982):
`sum_t (x_t - centre)^2 / (tau^2 + e_t)` is the number of tensors less one. Tensors that are alike share one prior,
whatever their size; those that clearly differ keep their own.
"""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from quietnn.moments import WeightStatistics
from quietnn.noise import TensorNoise, mean_of
from quietnn.random_effects import SMALLEST, TOLERANCE, shrunk

Told = tuple[float, float, int]
"""Mean, variance (perhaps below zero) and count of a tensor's clean weights, as a receiver can tell them."""

_ROUNDS = 20


def pooled(found: Sequence[Told]) -> WeightStatistics:
    """One prior for several tensors, in any order, each by its size."""
    count = sum(number for _, _, number in found)
    mean = math.fsum(mean * number for mean, _, number in found) / count
    variance = math.fsum(number * (variance + (own - mean) ** 2) for own, variance, number in found) / count
    return WeightStatistics(mean, max(variance, 0.0), count)


def shared_priors(told: Mapping[str, Told], noise: Mapping[str, TensorNoise]) -> dict[str, WeightStatistics]:
    """The prior of each tensor of a group, between what was told of it and what it shares with the others.

    The errors depend on the variances, which are sought: both settle in a few rounds.

    >>> alike = shared_priors({"a": (0.0, 1.0, 4), "b": (0.0, 3.0, 4)}, {"a": 0.1, "b": 0.2})
    >>> apart = shared_priors({"a": (0.0, 1.0, 4000), "b": (0.0, 3.0, 4000)}, {"a": 0.1, "b": 0.2})
    >>> [round(own.variance, 2) for own in (*alike.values(), *apart.values())]
    [2.67, 2.67, 1.0, 3.0]
    """
    group = pooled(list(told.values()))
    # Squares of variances pass the range of floats where variances do not.
    unit = max(group.variance, *(mean_of(noise[name]) for name in told), *(abs(own[1]) for own in told.values()))
    if unit == 0:
        return {name: WeightStatistics(mean, 0.0, count) for name, (mean, _, count) in told.items()}
    levels = [_in_double(noise[name]) / unit for name in told]
    counts = [count for _, _, count in told.values()]
    variances = [group.variance / unit] * len(told)
    for _ in range(_ROUNDS):
        errors = [_error(*each, power=1) for each in zip(variances, levels, counts, strict=True)]
        own = [variance / unit + error for (_, variance, _), error in zip(told.values(), errors, strict=True)]
        spread = [2 * _error(*each, power=2) for each in zip(variances, levels, counts, strict=True)]
        before, variances = variances, [max(value, 0.0) for value in shrunk(own, spread)]
        if max(abs(new - old) for new, old in zip(variances, before, strict=True)) <= TOLERANCE:
            break
    root = math.sqrt(unit)
    means = shrunk([mean / root for mean, _, _ in told.values()], errors)
    return {
        name: WeightStatistics(mean * root, variance * unit, count)
        for name, mean, variance, count in zip(told, means, variances, counts, strict=True)
    }


def _in_double(noise: TensorNoise) -> TensorNoise:
    return noise.double() if isinstance(noise, Tensor) else noise


def _error(variance: float, noise: TensorNoise, count: int, *, power: int) -> float:
    """`1 / sum_i 1 / (sigma_w^2 + v_i)^power`."""
    if not isinstance(noise, Tensor):
        return (variance + noise) ** power / count
    information = mean_of((variance + noise).clamp_min(SMALLEST).reciprocal().pow(power))
    return 1 / (information * count)
