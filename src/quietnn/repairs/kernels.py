"""A prior for convolutions: smooth kernels, input channels that differ in power (docs/how-it-works/structured.md).

    w[o, i, :] ~ N(0, v_i S)        v_i: relative power of input channel i, of mean 1;  S: covariance of the positions

The family of the paper (eq. 10) holds in the eigenbasis of `S`, for each input channel and eigenvalue `e_l` by itself:

    theta_il = v_i e_l / (v_i e_l + (1 - lambda') sigma_z^2)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.noise import NoiseVariance, noise_by_tensor, noise_of_each, one_variance
from quietnn.observation import Observation
from quietnn.random_effects import beyond_error, positive_mean
from quietnn.repairs.affine import AffineDenoiser, TensorMap, WeightwiseMap
from quietnn.repairs.rounding import is_on_a_grid
from quietnn.watching.survey import CONVOLUTIONS
from quietnn.weights import Weights, layerwise

LAMBDA_PRIME = 0.9
"""The compensator of the structured prior: a tenth of the noise counts. Chosen on training images, see
docs/how-it-works/structured.md."""

_FALSE_ALARM = 1e-3
"""How often a true noise variance may be taken for an impossible one, over all tensors of a model."""


@dataclass(frozen=True)
class KernelMap:
    """The map of a convolution's weights: kernels are turned to the eigenbasis, multiplied, and turned back."""

    basis: Tensor  # (positions, positions), one eigenvector a column
    power: Tensor  # (input channels, positions), `v_i e_l`: the variance of the clean weights in that basis
    theta: Tensor  # of the same shape, the multipliers
    noise_variance: float
    was_on_a_grid: bool = False  # whether the received weights were rounded, which the estimate does not show

    @property
    def gain(self) -> float:
        """What is left of the clean weights on average: the slope of `w_hat` on `w`."""
        return float((self.power * self.theta).sum() / self.power.sum())

    @property
    def rest_variance(self) -> float:
        """The variance of `w_hat - gain w`: noise that is left, and signal that was bent."""
        bent = (self.theta - self.gain).square() * self.power
        return float((bent + self.theta.square() * self.noise_variance).mean())

    @torch.no_grad()
    def __call__(self, received: Tensor, out: Tensor | None = None) -> Tensor:
        """Denoise the weights of a convolution, into `out` if given; without noise they come back bit for bit."""
        if bool((self.theta == 1).all()):
            return received.clone() if out is None else out.copy_(received)
        kernels = received.detach().double().flatten(2)
        basis, theta = self.basis.to(kernels), self.theta.to(kernels)
        estimate = ((kernels @ basis) * theta @ basis.T).view(received.shape).to(received.dtype)
        return estimate if out is None else out.copy_(estimate)


def kernel_map(weight: Tensor, noise_variance: float, *, lambda_prime: float = LAMBDA_PRIME) -> KernelMap:
    """The structured prior of one convolution, (outputs, inputs, positions...) as received, and the map that follows.

    >>> kernels = torch.randn(64, 32, 1, 1, generator=torch.Generator().manual_seed(0)) * torch.ones(3, 3)
    >>> kernel_map(kernels, 0.0).theta.unique()                # no noise, no change
    tensor([1.], dtype=torch.float64)
    """
    kernels = weight.detach().double().flatten(2)
    num_outputs, num_inputs, num_positions = kernels.shape
    total = max(float(kernels.square().mean()), torch.finfo(torch.float64).tiny ** 0.25)
    least = math.sqrt(2.0 / kernels.numel()) * total  # that can be told from nothing
    signal = max(total - noise_variance, least)
    flat = kernels.reshape(-1, num_positions)
    seen = flat.T @ flat / len(flat) - noise_variance * torch.eye(num_positions).to(flat)
    plain = signal * torch.eye(num_positions).to(flat)
    bent = seen - plain
    error = total**2 * num_positions * (num_positions + 1) / len(flat)
    share = float(beyond_error(bent.square().sum(), error))
    eigenvalues, basis = torch.linalg.eigh(plain + share * bent)
    eigenvalues = positive_mean(eigenvalues, share * 2.0 * total**2 / len(flat))
    deviation = (kernels.square().mean(dim=(0, 2)) - noise_variance) / signal - 1.0
    error = 2.0 * (total / signal) ** 2 / (num_outputs * num_positions)
    share = float(beyond_error(deviation.square().sum(), error * num_inputs)) if num_inputs > 1 else 0.0
    power = positive_mean(1.0 + share * deviation, share * error)[:, None] * eigenvalues
    if total - noise_variance <= least:  # what shows no signal shows no structure of it
        power = torch.full_like(power, signal)
    kept = (1.0 - lambda_prime) * noise_variance
    theta = torch.where(power > 0, power / (power + kept), float(kept == 0))
    return KernelMap(basis, power, theta, noise_variance, is_on_a_grid(weight, math.sqrt(noise_variance)))


def believable_noise(weights: Weights, noise_variance: NoiseVariance) -> NoiseVariance:
    """The noise variance that was told, lowered where a tensor contradicts it (docs/how-it-works/structured.md).

    A tensor of `n` weights contradicts every variance above

        mean(r^2) / q_n(alpha / K)        q_n: quantile of chi-square over n, K: number of tensors

    A true one is lowered in one model of a thousand (`alpha`) at most. One variance for all is held below the least of
    these: told too large, it would take every direction that is weaker than the mistake for empty.

    >>> round(believable_noise({"w": torch.tensor([1.0, -1.0] * 10_000)}, 5.0), 3)
    1.032
    >>> believable_noise({"w": torch.tensor([0.01])}, 5.0)                 # one weight may be small by chance
    5.0
    """
    limits = {name: _most_noise(tensor, _FALSE_ALARM / len(weights)) for name, tensor in weights.items()}
    by_tensor = noise_by_tensor(noise_variance, weights)
    if by_tensor is None:
        return min(one_variance(noise_variance), *limits.values())
    return {name: own if isinstance(own, Tensor) else min(own, limits[name]) for name, own in by_tensor.items()}


def _most_noise(tensor: Tensor, tail: float) -> float:
    """The largest noise variance under which a tensor has so little power with probability `tail`."""
    least = _chi_square_over_degrees(tensor.numel(), tail)
    return float(tensor.detach().double().square().mean()) / least if least > 0 else math.inf


def _chi_square_over_degrees(degrees: int, tail: float) -> float:
    """The quantile of a chi-square variable over its degrees of freedom (Wilson and Hilferty 1931).

        q_n(p) = (1 - 2 / (9 n) + z_p sqrt(2 / (9 n)))^3        z_p: quantile of a standard Gaussian

    In the far lower tail it lies below the exact one, and at zero for a handful of degrees: on the safe side here.
    """
    from statistics import NormalDist  # brings fractions and decimals, for this one number

    spread = 2.0 / (9.0 * degrees) if degrees else math.inf
    return max(1.0 - spread + NormalDist().inv_cdf(tail) * math.sqrt(spread), 0.0) ** 3


def structured_denoisers(observation: Observation[Any, Any]) -> dict[str, AffineDenoiser]:
    """A map for every layer of a network: the structured prior for convolutions, everything else as received.

    So is a convolution whose noise differs from weight to weight: what a deep fade leaves would pass for structure.

    They are the denoisers of `groups="layerwise"`. Calibrate the network afterwards with the same denoisers: a scale
    that a convolution loses is given back by the BatchNorm behind it, and only by that.
    """
    weights, kernels = observation.weights, _kernels(observation.model)
    maps: dict[str, TensorMap] = {
        name: WeightwiseMap(1.0, 0.0)
        if name not in kernels or isinstance(own, Tensor)
        else kernel_map(weights[name], own)
        for name, own in noise_of_each(observation.known_noise, weights).items()
    }
    return {group: _group_map({name: maps[name] for name in members}) for group, members in layerwise(weights).items()}


def _group_map(members: Mapping[str, TensorMap]) -> AffineDenoiser:
    gains = [own.gain for own in members.values() if isinstance(own, KernelMap)]
    return AffineDenoiser(sum(gains) / len(gains), 0.0, members) if gains else AffineDenoiser(1.0, 0.0)


def _kernels(model: nn.Module) -> set[str]:
    """Names of the weights of convolutions; kinds are compared exactly, a child class may do something else."""
    return {f"{name}.weight".lstrip(".") for name, layer in model.named_modules() if type(layer) in CONVOLUTIONS}
