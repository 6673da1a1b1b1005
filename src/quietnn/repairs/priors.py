"""The priors of groups and of their tensors, as far as a receiver that knows the noise can tell them.

Where noise differs between the tensors of a group, each has a prior of its own, as far as it can be told from that of
the others ("Noise that differs", docs/reference/channels.md). Mean and variance of a tensor's clean weights are told
with errors, the inverse of Fisher's information. They go towards the centre of the group by as much as they are
uncertain (`quietnn.random_effects`).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quietnn.moments import WeightStatistics
from quietnn.noise import TensorNoise, mean_of
from quietnn.random_effects import SMALLEST, TOLERANCE, shrunk
from quietnn.weights import Partition

Told = tuple[float, float, int]
"""Mean, variance (perhaps below zero) and count of a tensor's clean weights, as a receiver can tell them."""

_ROUNDS = 20
_ITERATIONS = 30


def told(tensor: Tensor, noise: TensorNoise) -> Told:
    """What a receiver can tell of a tensor's clean weights when it knows the noise on each.

    Each weight counts by how much it tells, `1 / (sigma_w^2 + v_i)` for the mean and its square for `(r_i - mu)^2 -
    v_i` (the steps of Fisher scoring, until they settle); a weight lost in a deep fade counts nothing.

    >>> told(torch.tensor([1.0, -1.0]), 0.25)
    (0.0, 0.75, 2)
    """
    values = tensor.detach().double().flatten()
    if not isinstance(noise, Tensor):
        return told_of(WeightStatistics.from_clean([tensor]), noise)
    spread = noise.double().expand(tensor.shape).flatten().to(values.device)
    mean, variance = float(values.mean()), float(values.var(correction=0) - spread.mean())
    for _ in range(_ITERATIONS):
        precision = 1.0 / (max(variance, 0.0) + spread).clamp_min(torch.finfo(torch.float64).tiny ** 0.25)
        mean = float((precision * values).sum() / precision.sum())
        weight = precision.square()
        before, variance = variance, float((weight * ((values - mean).square() - spread)).sum() / weight.sum())
        if abs(variance - before) <= 1e-9 * abs(variance):
            break
    return mean, variance, values.numel()


def told_of(received: WeightStatistics, noise: float) -> Told:
    """The same for one noise variance, of which only the statistics of the received weights are needed."""
    return received.mean, received.variance - noise, received.num_weights


def priors_under(
    told: Mapping[str, Told], noise: Mapping[str, TensorNoise], groups: Partition
) -> tuple[dict[str, WeightStatistics], dict[str, WeightStatistics]]:
    """The prior of each group, and of each tensor where noise differs between the tensors of the group.

    A group pools its tensors by their size, for a tensor with little noise may have smaller weights than the rest.
    Where noise is the same for all tensors, that is the prior of each.

    >>> told = {"a": (0.0, 1.0, 900), "b": (0.0, 3.0, 900)}
    >>> priors_under(told, {"a": 0.1, "b": 0.1}, {"whole": ("a", "b")})[1]["a"].variance
    2.0
    >>> round(priors_under(told, {"a": 0.1, "b": 0.2}, {"whole": ("a", "b")})[1]["a"].variance, 2)
    1.0
    """
    by_group = {group: pooled([told[name] for name in members]) for group, members in groups.items()}
    by_tensor = {}
    for group, members in groups.items():
        if len({mean_of(noise[name]) for name in members}) > 1:
            by_tensor.update(shared_priors({name: told[name] for name in members}, noise))
        else:
            by_tensor.update(dict.fromkeys(members, by_group[group]))
    return by_group, by_tensor


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
    levels = [(level.double() if isinstance(level := noise[name], Tensor) else level) / unit for name in told]
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


def _error(variance: float, noise: TensorNoise, count: int, *, power: int) -> float:
    """`1 / sum_i 1 / (sigma_w^2 + v_i)^power`."""
    if not isinstance(noise, Tensor):
        return (variance + noise) ** power / count
    information = mean_of((variance + noise).clamp_min(SMALLEST).reciprocal().pow(power))
    return 1 / (information * count)
