"""What a denoiser leaves of each parameter and of its noise, and of the clean statistics behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quietnn.noise import TensorNoise, mean_of, noise_of_each
from quietnn.observation import Observation
from quietnn.repairs.affine import WeightwiseMap
from quietnn.repairs.kernels import KernelMap
from quietnn.watching.survey import Feeder
from quietnn.watching.visits import Visit
from quietnn.weights import check_weights

LinearMap = WeightwiseMap | KernelMap
"""What was done to a tensor: its weights multiplied, each by itself or in a basis; nothing is added."""


@dataclass(frozen=True)
class ParameterNoise:
    """A parameter as it stands in the network: `theta w + noise`.

    Each is a number, or a tensor with one value for each output channel, where those differ.
    """

    theta: TensorNoise = 1.0  # what is left of the clean value
    variance: TensorNoise = 0.0  # of the noise that is left, `theta^2 sigma_z^2`


CLEAN = ParameterNoise()


def parameter_noise(
    observation: Observation[Any, Any], maps: Mapping[str, LinearMap] | None = None
) -> dict[int, ParameterNoise]:
    """The noise on each parameter of a module, by `id(parameter)`; those that are not listed are clean.

    `maps` by tensor name are what was done to the received weights. Of a parameter whose weights differ in their noise,
    each output channel counts with its mean.
    """
    weights, maps = observation.weights, maps or {}
    check_weights(weights)
    noise = noise_of_each(observation.known_noise, weights)
    parameters = dict(observation.model.named_parameters(remove_duplicate=False))
    return {id(parameters[name]): _left(maps.get(name), noise[name], tensor) for name, tensor in weights.items()}


def _left(own: LinearMap | None, noise: TensorNoise, estimate: Tensor) -> ParameterNoise:
    """What a map leaves of one parameter and of its noise.

    Where it maps each weight by itself, `theta_i w + theta_i z_i` is a mean part and a rest of variance
    `mean(theta_i^2 v_i) + Var(theta_i) sigma_w^2`, means and variance over the weights of an output channel; MMSE's
    estimate has the power `E[theta_i] sigma_w^2`.
    """
    if own is None:
        return ParameterNoise(1.0, by_output(noise, estimate))
    if isinstance(own, KernelMap):
        return ParameterNoise(own.gain, own.rest_variance)
    theta = torch.as_tensor(own.theta, dtype=torch.float64)
    left, mean = by_output(theta.square() * noise, estimate), float(theta.mean())
    if mean > 0 and theta.ndim:
        power = float(estimate.detach().double().var(correction=0)) / mean
        left = left + (by_output(theta.square(), estimate) - by_output(theta, estimate) ** 2) * power
    return ParameterNoise(by_output(theta, estimate), left)


def by_output(value: TensorNoise, parameter: Tensor) -> TensorNoise:
    """The mean over the weights of each output channel (first dimension); one number where all are the same.

    >>> by_output(torch.tensor([[1.0, 3.0], [5.0, 5.0]]), torch.zeros(2, 2))
    tensor([2., 5.], dtype=torch.float64)
    >>> by_output(torch.full((2, 1), 0.5), torch.zeros(2, 2))
    0.5
    """
    if not isinstance(value, Tensor):
        return value
    if parameter.ndim == 0 or bool((value == value.flatten()[0]).all()):
        return mean_of(value)
    return value.double().expand(parameter.shape).reshape(len(parameter), -1).mean(1).to(parameter.device)


def carried(visit: Visit, feeder: Feeder, weight: ParameterNoise, bias: ParameterNoise) -> tuple[Tensor, Tensor]:
    """Mean `theta m + (theta_b - theta) b` and variance `theta^2 v` of the clean output under a map.

    The clean bias `b` is judged by the one at hand, and taken for zero where nothing is left of it.
    """
    mean, variance = visit.mean.double(), visit.variance.double()
    own = getattr(feeder.layer, "bias", None)
    if own is not None:
        theta, kept = (torch.as_tensor(one, dtype=torch.float64).to(own.device) for one in (weight.theta, bias.theta))
        clean = torch.where(kept == 0, 0.0, own.detach().double() / kept.masked_fill(kept == 0, 1.0))
        return weight.theta * mean + (kept - theta) * clean, weight.theta**2 * variance
    return weight.theta * mean, weight.theta**2 * variance
