"""How strong the noise is: one variance for the whole model, or one by tensor, by channel or by weight."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.theory.family import check_variance
from quietnn.weights import Partition, Weights, layerwise

TensorNoise = float | Tensor
"""The noise variance of one tensor: a number, or a tensor that broadcasts to its shape (by channel, by weight)."""

NoiseVariance = float | Tensor | Mapping[str, TensorNoise]
"""`sigma_z^2` of a model: one number, or by tensor name or group name; for a model of one tensor, a tensor."""


def noise_by_tensor(
    noise_variance: NoiseVariance, weights: Weights, groups: Partition | None = None
) -> dict[str, TensorNoise] | None:
    """The noise variance of each tensor, once it is checked; None where one number serves the whole model.

    Keys may name tensors, their layers, and `groups`.

    >>> weights = {"conv.weight": torch.ones(2, 3), "fc.weight": torch.ones(4)}
    >>> noise_by_tensor({"conv": 0.1, "fc.weight": 0.2}, weights)
    {'conv.weight': 0.1, 'fc.weight': 0.2}
    >>> noise_by_tensor(0.1, weights) is None
    True
    """
    if isinstance(noise_variance, Mapping):
        given = _by_name(noise_variance, weights, groups or {})
    elif isinstance(noise_variance, Tensor) and noise_variance.ndim:
        if len(weights) != 1:
            raise InvalidConfig(
                f"noise_variance is one tensor for {len(weights)} tensors of weights; give a dict by tensor name"
            )
        given = dict.fromkeys(weights, noise_variance)
    else:
        one_variance(noise_variance)
        return None
    return {name: _checked(given[name], name, weights[name]) for name in weights}


def noise_of_each(
    noise_variance: NoiseVariance, weights: Weights, groups: Partition | None = None
) -> dict[str, TensorNoise]:
    """The noise variance of each tensor, also where one number serves the whole model.

    >>> noise_of_each(0.1, {"fc.weight": torch.ones(4)})
    {'fc.weight': 0.1}
    """
    found = noise_by_tensor(noise_variance, weights, groups)
    return dict.fromkeys(weights, one_variance(noise_variance)) if found is None else found


def one_variance(noise_variance: NoiseVariance) -> float:
    """The one number that a model's noise variance is.

    >>> one_variance(torch.tensor(0.5))
    0.5
    """
    if isinstance(noise_variance, Mapping):
        raise InvalidConfig("noise_variance differs from tensor to tensor; one number is needed here")
    number = noise_variance.item() if isinstance(noise_variance, Tensor) else noise_variance
    check_variance(number, "noise_variance")
    return number


def mean_noise(noise: Mapping[str, TensorNoise], weights: Weights, names: Iterable[str] | None = None) -> float:
    """The noise variance of an average weight, over some tensors or all.

    >>> weights = {"a": torch.ones(3), "b": torch.ones(1)}
    >>> mean_noise({"a": 1.0, "b": 5.0}, weights)
    2.0
    """
    names = list(weights if names is None else names)
    total = math.fsum(mean_of(noise[name]) * weights[name].numel() for name in names)
    return total / sum(weights[name].numel() for name in names)


def mean_variance(noise_variance: NoiseVariance, weights: Weights) -> float:
    """The same, whatever form the noise has; one number as it is."""
    noise = noise_by_tensor(noise_variance, weights)
    return one_variance(noise_variance) if noise is None else mean_noise(noise, weights)


def noise_by_group(noise_variance: NoiseVariance, weights: Weights, groups: Partition) -> NoiseVariance:
    """The same noise evened out within each group: every tensor has the mean of its group's weights.

    A map `w_hat = theta r + rho` with one pair of numbers for a group knows no finer noise than that.

    >>> weights = {"fc.weight": torch.ones(3), "fc.bias": torch.ones(1), "out.weight": torch.ones(4)}
    >>> noise = {"fc.weight": 1.0, "fc.bias": 5.0, "out": 0.5}
    >>> noise_by_group(noise, weights, layerwise(weights))
    {'fc.weight': 2.0, 'fc.bias': 2.0, 'out.weight': 0.5}
    """
    noise = noise_by_tensor(noise_variance, weights, groups)
    if noise is None:
        return noise_variance
    return {name: mean_noise(noise, weights, members) for members in groups.values() for name in members}


def mean_of(noise: TensorNoise) -> float:
    """The mean noise variance of one tensor; a dimension it broadcasts along counts evenly."""
    return float(noise.double().mean()) if isinstance(noise, Tensor) else noise


def scaled(noise_variance: NoiseVariance, factor: float) -> NoiseVariance:
    """The same noise, stronger or weaker everywhere."""
    if isinstance(noise_variance, Mapping):
        return {name: noise * factor for name, noise in noise_variance.items()}
    return noise_variance * factor


def _by_name(given: Mapping[str, TensorNoise], weights: Weights, groups: Partition) -> dict[str, TensorNoise]:
    """Each tensor's own entry, else that of its group, else that of its layer."""
    layers = layerwise(weights)
    unknown = [name for name in given if name not in weights and name not in groups and name not in layers]
    if unknown:
        raise InvalidConfig(f"noise_variance names {unknown[0]!r}, which is neither a noisy tensor nor a group of them")
    found: dict[str, TensorNoise] = {}
    for partition in (layers, groups, {name: (name,) for name in weights}):  # the later the better
        found.update((name, given[key]) for key, members in partition.items() if key in given for name in members)
    missing = [name for name in weights if name not in found]
    if missing:
        raise InvalidConfig(f"noise_variance has no entry for {missing[0]!r}; give one for each noisy tensor or group")
    return found


def _checked(noise: TensorNoise, name: str, weight: Tensor) -> TensorNoise:
    """A number as it is; a tensor once it is known to be finite, not negative, and of a shape that fits."""
    if not isinstance(noise, Tensor) or noise.ndim == 0:
        number = noise.item() if isinstance(noise, Tensor) else noise
        check_variance(number, f"noise_variance of {name}")
        return number
    if noise.is_complex():
        raise InvalidConfig(
            f"noise_variance of {name} is {noise.dtype}; a variance is real, that of z is abs(z).square().mean()"
        )
    pairs = zip(reversed(noise.shape), reversed(weight.shape), strict=False)
    if noise.ndim > weight.ndim or any(own not in (1, wanted) for own, wanted in pairs):
        raise InvalidConfig(
            f"noise_variance of {name} has shape {tuple(noise.shape)}, which does not broadcast to the weights' "
            f"{tuple(weight.shape)}; give a number, or one value for each weight"
        )
    least, largest = torch.aminmax(noise.detach())
    for value in (float(least), float(largest)):
        check_variance(value, f"a noise variance of {name}")
    return noise.detach()
