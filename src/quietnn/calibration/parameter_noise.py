"""What noise is left on each parameter, once a denoiser has been over it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.denoisers.affine import AffineDenoiser
from quietnn.denoisers.heteroscedastic import WeightwiseMap
from quietnn.denoisers.structured import KernelMap
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance, TensorNoise, mean_of, noise_by_tensor, one_variance
from quietnn.targets import noisy_weights
from quietnn.weights import NORMALISATION_TYPES, Partition, check_weights, partition

Denoisers = AffineDenoiser | Mapping[str, AffineDenoiser]
"""One affine map for all noisy parameters, or one by group."""


@dataclass(frozen=True)
class ParameterNoise:
    """A parameter as it stands in the network: `theta w + rho + noise`.

    Attributes:
        theta: what is left of the clean value.
        rho: what was added to it.
        variance: of the noise that is left, `theta^2 sigma_z^2`.
    """

    theta: float = 1.0
    rho: float = 0.0
    variance: float = 0.0


CLEAN = ParameterNoise()


def parameter_noise(
    model: nn.Module,
    noise_variance: NoiseVariance,
    *,
    denoisers: Denoisers | None = None,
    groups: str | Partition = "whole",
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> dict[int, ParameterNoise]:
    """The noise on each parameter of a module, by `id(parameter)`; those that are not listed are clean.

    A parameter whose weights differ in their noise counts with its mean.

    Raises:
        QuietnnError: for a bad variance, weights that are not finite, or denoisers that do not fit the groups.
    """
    weights = noisy_weights(model, noisy=noisy, normalisation=normalisation)
    check_weights(weights)
    chosen = partition(tuple(weights), groups)
    noise = noise_by_tensor(noise_variance, weights, chosen)
    if noise is None:
        noise = dict.fromkeys(weights, one_variance(noise_variance))
    if denoisers is None:
        denoisers = AffineDenoiser(1.0, 0.0)
    if isinstance(denoisers, AffineDenoiser):
        denoisers = dict.fromkeys(chosen, denoisers)
    wrong = set(denoisers) ^ set(chosen)
    if wrong:
        raise InvalidConfig(f"denoisers and groups differ in {sorted(wrong)[0]!r}; give one denoiser for each group")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {
        id(parameters[name]): _left(denoisers[group], name, noise[name], weights[name])
        for group, members in chosen.items()
        for name in members
    }


def _left(denoiser: AffineDenoiser, name: str, noise: TensorNoise, estimate: Tensor) -> ParameterNoise:
    """What a denoiser leaves of one parameter and of its noise.

    Where it maps each weight by itself, `theta_i w + rho_i + theta_i z_i` is a mean part and a rest of variance
    `mean(theta_i^2 v_i) + Var(theta_i) sigma_w^2`; MMSE's estimate has the power `E[theta_i] sigma_w^2`.
    """
    own = denoiser.on(name)
    if isinstance(own, KernelMap):
        return ParameterNoise(own.gain, 0.0, own.rest_variance)
    if not isinstance(own, WeightwiseMap):
        return ParameterNoise(denoiser.theta, denoiser.rho, denoiser.theta**2 * mean_of(noise))
    theta, rho = (torch.as_tensor(part, dtype=torch.float64) for part in (own.theta, own.rho))
    mean = float(theta.mean())
    rest = float((theta.square() * noise).mean())
    if mean > 0:
        rest += float(theta.var(correction=0)) * float(estimate.detach().double().var(correction=0)) / mean
    return ParameterNoise(mean, float(rho.mean()), rest)
