"""What a denoiser leaves of each parameter and of its noise, and of the clean statistics behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.noise import TensorNoise, mean_of, noise_of_each
from quietnn.observation import Observation
from quietnn.repairs.affine import AffineDenoiser, WeightwiseMap
from quietnn.repairs.kernels import KernelMap
from quietnn.watching.samples import Visit
from quietnn.watching.survey import Feeder
from quietnn.weights import Partition, check_weights, partition

Denoisers = AffineDenoiser | Mapping[str, AffineDenoiser]
"""One affine map for all noisy parameters, or one by group."""


@dataclass(frozen=True)
class ParameterNoise:
    """A parameter as it stands in the network: `theta w + rho + noise`.

    Each is a number, or a tensor with one value for each output channel, where those differ.
    """

    theta: TensorNoise = 1.0  # what is left of the clean value
    rho: TensorNoise = 0.0  # what was added to it
    variance: TensorNoise = 0.0  # of the noise that is left, `theta^2 sigma_z^2`
    was_on_a_grid: bool = False  # whether the received weights were rounded, where a denoiser has hidden that


CLEAN = ParameterNoise()


def parameter_noise(
    observation: Observation[Any, Any], *, denoisers: Denoisers | None = None, groups: str | Partition = "whole"
) -> dict[int, ParameterNoise]:
    """The noise on each parameter of a module, by `id(parameter)`; those that are not listed are clean.

    Of a parameter whose weights differ in their noise, each output channel counts with its mean.
    """
    weights = observation.weights
    check_weights(weights)
    chosen = partition(tuple(weights), groups)
    noise = noise_of_each(observation.known_noise, weights, chosen)
    if denoisers is None or isinstance(denoisers, AffineDenoiser):
        denoisers = dict.fromkeys(chosen, denoisers or AffineDenoiser(1.0, 0.0))
    wrong = set(denoisers) ^ set(chosen)
    if wrong:
        raise InvalidConfig(f"denoisers and groups differ in {sorted(wrong)[0]!r}; give one denoiser for each group")
    parameters = dict(observation.model.named_parameters(remove_duplicate=False))
    return {
        id(parameters[name]): _left(denoisers[group], name, noise[name], weights[name])
        for group, members in chosen.items()
        for name in members
    }


def _left(denoiser: AffineDenoiser, name: str, noise: TensorNoise, estimate: Tensor) -> ParameterNoise:
    """What a denoiser leaves of one parameter and of its noise.

    Where it maps each weight by itself, `theta_i w + rho_i + theta_i z_i` is a mean part and a rest of variance
    `mean(theta_i^2 v_i) + Var(theta_i) sigma_w^2`, means and variance over the weights of an output channel; MMSE's
    estimate has the power `E[theta_i] sigma_w^2`.
    """
    own = denoiser.on(name)
    if isinstance(own, KernelMap):
        return ParameterNoise(own.gain, 0.0, own.rest_variance, own.was_on_a_grid)
    if not isinstance(own, WeightwiseMap):
        return ParameterNoise(denoiser.theta, denoiser.rho, denoiser.theta**2 * by_output(noise, estimate))
    theta, rho = (torch.as_tensor(part, dtype=torch.float64) for part in (own.theta, own.rho))
    left, mean = by_output(theta.square() * noise, estimate), float(theta.mean())
    if mean > 0 and theta.ndim:
        power = float(estimate.detach().double().var(correction=0)) / mean
        left = left + (by_output(theta.square(), estimate) - by_output(theta, estimate) ** 2) * power
    return ParameterNoise(by_output(theta, estimate), by_output(rho, estimate), left)


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
    """Mean and variance of `theta a + rho S + rho_b`, where `a` is the clean output and `S` the sum of its inputs.

        mean     = theta m + rho E[S] + (theta_b - theta) b + rho_b
        variance = theta^2 v + 2 rho Cov(a', S) - rho^2 Var[S]

    `a'` is the output at hand, of which `rho S` is a part already; noise is uncorrelated with `S` in expectation. The
    clean bias `b` is judged by the one at hand. `theta` and `rho` may differ between the channels.
    """
    mean, variance = visit.mean.double(), visit.variance.double()
    if _is(weight.theta, 1.0) and _is(weight.rho, 0.0) and _is(bias.theta, 1.0) and _is(bias.rho, 0.0):
        return mean, variance
    mean = weight.theta * mean + weight.rho * visit.patches.means + bias.rho
    own_bias = getattr(feeder.layer, "bias", None)
    if own_bias is not None:
        mean = mean + _bias_left(own_bias.detach().double(), weight.theta, bias)
    variance = weight.theta**2 * variance
    if not _is(weight.rho, 0.0):
        sums = visit.input_sum
        variance = variance + 2 * weight.rho * sums.covariance - weight.rho**2 * sums.power
    return mean, variance.clamp_min(0)


def _is(value: TensorNoise, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number


def _bias_left(own: Tensor, theta: TensorNoise, bias: ParameterNoise) -> Tensor | float:
    """`(theta_b - theta) b`, with `b` judged by the bias at hand; nothing where nothing is left of it."""
    if not isinstance(theta, Tensor) and not isinstance(bias.theta, Tensor):
        return (bias.theta - theta) * (own - bias.rho) / bias.theta if bias.theta not in (0.0, theta) else 0.0
    kept = torch.as_tensor(bias.theta, dtype=torch.float64, device=own.device).expand(own.shape)
    clean = (own - bias.rho) / kept.masked_fill(kept == 0, 1.0)
    return torch.where(kept == 0, 0.0, (kept - theta) * clean)
