"""The noise power from BatchNorm's mismatch: clean statistics beside what the noisy weights make of some inputs.

A layer `a = w . x` in front of a BatchNorm has the clean variance `v`, which arrived safely. With `w + z` for `w`, on
inputs of covariance `C`, the variance of a channel is

    v' = share v + sigma^2 tr(C) + own        E[own] = 0,  Var[own] = q (4 sigma^2 tr(C) v + 2 sigma^4 tr(C)^2)

where `q` is the concentration (docs/how-it-works/calibration.md) and `share` what is left of the signal: a part `u` of
the inputs' power is noise of earlier layers, and between `1 - u` and all of `v` survives it. `tr(C)` and `v'` are
measured on the same inputs, noise and all, so every layer gives an estimate

    sigma^2 = sum_c (v'_c - (1 - u / 2) v_c) / sum_c tr(C_c)

that is good where noise outweighs the signal, whatever happened before. Layers are pooled by their precisions. What
they disagree in beyond `own` is put down to a difference between these inputs and the sender's ("The gap" in
docs/how-it-works/calibration.md). It acts on `v` and on all layers alike, as `share` does, so both count as fully
correlated in the standard error.
"""

import copy
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights, check_is
from quietnn.evidence import some_inputs
from quietnn.noise_power.estimate import NoisePower
from quietnn.random_effects import excess_variance
from quietnn.targets import noisy_weights
from quietnn.watching.samples import Visit
from quietnn.watching.visits import visit_batch_norms
from quietnn.weights import NORMALISATION_TYPES, check_module

_STEPS = 30
_LARGEST_SHARE = 1 - 1e-9


@torch.inference_mode(False)
def noise_power_from_batch_norm(
    model: nn.Module,
    inputs: object,
    *,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> NoisePower:
    """Estimate the noise power from a network with BatchNorm and a few unlabelled inputs.

    It takes one forward pass, or runs in batches as `calibrate` does.

    Args:
        model: the network as received, not denoised; its BatchNorms hold the clean statistics.
        inputs: at least two inputs of the kind the network is for, about 100 if you can, in any form of `Evidence`.
        noisy: names of the noisy tensors, where the usual rule does not fit.
        normalisation: module types whose parameters carry no noise.

    Returns:
        The estimate, never negative, and its standard error. Where noise is weak, the error is as large as the
        estimate: a mismatch of a few per cent cannot be told from inputs that differ from the sender's.

    Raises:
        QuietnnError: if there is no BatchNorm that a noisy convolution or linear layer feeds, fewer than two inputs, or
            something is not finite.

    >>> network = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64, momentum=1.0))
    >>> inputs = torch.randn(200, 32, generator=torch.Generator().manual_seed(0))
    >>> clean = network(inputs)                                              # sets the statistics
    >>> noise = 0.1 * torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    >>> noisy = network[0].weight.data.add_(noise)
    >>> round(noise_power_from_batch_norm(network, inputs).variance, 2)      # sigma_z = 0.1
    0.01
    """
    check_is(model, nn.Module, "model", "the network comes first: noise_power_from_batch_norm(model, inputs)")
    check_module(model, normalisation=normalisation)
    watched = copy.deepcopy(model)
    names = noisy_weights(watched, noisy=noisy, normalisation=normalisation)
    parameters = dict(watched.named_parameters(remove_duplicate=False))
    rule = _Mismatch({id(parameters[name]) for name in names})
    visit_batch_norms(watched, some_inputs(inputs, "noise_power_from_batch_norm"), rule)
    if not rule.layers:
        raise InvalidConfig(
            "no BatchNorm with variances above zero is fed by a noisy convolution or linear layer and by that alone, "
            "so there is no mismatch to measure; use noise_power_from_pilots or noise_power_from_receptions"
        )
    return _pool(rule.layers, rule.energies())


@dataclass(frozen=True)
class LayerMismatch:
    """Sums over the channels of one BatchNorm and the layer in front."""

    position: int  # of the layer among all that were called
    clean: float  # `sum v`
    seen: float  # `sum v'`
    per_noise: float  # `sum tr(C)`: growth of the variance per unit of noise variance
    cross: float  # `q sum tr(C) v`, and
    square: float  # `q sum tr(C)^2`: what the layer's own luck depends on
    sampling: float  # relative sampling variance of the inputs' variance, common to the channels

    def noise_share(self, variance: float) -> float:
        """The part of what is seen that is the layer's own noise."""
        return min(variance * self.per_noise / self.seen, _LARGEST_SHARE) if self.seen > 0 else 0.0

    def own_error(self, variance: float) -> float:
        """Variance of the layer's estimate by the luck of its own noise."""
        return (4 * variance * self.cross + 2 * variance**2 * self.square) / self.per_noise**2


class _Mismatch:
    """The rule of the visits: plain re-estimation, so that every layer is given inputs of their proper scale."""

    def __init__(self, noisy: set[int]) -> None:
        self.layers: list[LayerMismatch] = []
        self._noisy = noisy
        self._called: Sequence[nn.Module] = ()

    def __call__(self, visit: Visit) -> tuple[Tensor, Tensor]:
        sample = visit.channels
        if not sample.is_finite:
            raise InvalidWeights(
                f"what enters {visit.name} is not finite; the noise has blown up the network before it, "
                "so its power cannot be read from the statistics"
            )
        self._called = visit.called
        feeder = visit.feeder
        if feeder and id(getattr(feeder.layer, "weight", None)) in self._noisy:
            patches, narrow = visit.patches, visit.concentration
            clean = visit.variance.double()
            layer = LayerMismatch(
                position=feeder.position,
                clean=float(clean.sum()),
                seen=float(sample.variance.sum()),
                per_noise=float(patches.variances.sum()),
                cross=narrow * float((patches.variances * clean).sum()),
                square=narrow * float(patches.variances.square().sum()),
                sampling=sample.common_error,
            )
            if layer.per_noise > 0 and layer.clean > 0:  # statistics of zero are none: a layer that was never trained
                self.layers.append(layer)
        return sample.mean, sample.variance

    def energies(self) -> list[tuple[int, float]]:
        """Number of noisy weights and sum of their squares, for every layer that was called."""
        return [
            (
                sum(parameter.numel() for parameter in parameters),
                math.fsum(float(parameter.detach().double().square().sum()) for parameter in parameters),
            )
            for parameters in (
                [one for one in layer.parameters(recurse=False) if id(one) in self._noisy] for layer in self._called
            )
        ]


def _pool(layers: Sequence[LayerMismatch], energies: Sequence[tuple[int, float]]) -> NoisePower:
    """One estimate from all layers; the signal's share and the weights depend on it, so it is found by iteration."""
    variance, error = 0.0, math.inf
    for _ in range(_STEPS):
        before = variance
        variance, error = _step(layers, _upstream(layers, energies, variance), variance)
        variance = max(variance, 0.0)
        if abs(variance - before) <= 1e-4 * variance:
            break
    return NoisePower(variance, error, f"mismatch of {len(layers)} BatchNorms")


def _step(layers: Sequence[LayerMismatch], upstream: Sequence[float], variance: float) -> tuple[float, float]:
    """The pooled estimate and its standard error, if `variance` is near the truth."""
    pairs = list(zip(layers, upstream, strict=True))
    estimates = _column((layer.seen - (1 - u / 2) * layer.clean) / layer.per_noise for layer, u in pairs)
    signal = _column(layer.clean / layer.per_noise for layer in layers)
    own = _column(layer.own_error(variance) for layer in layers)
    shared = signal**2 * _column(u**2 / 12 + layer.sampling for layer, u in pairs)
    precision = 1 / (own + shared).clamp_min(torch.finfo(torch.float64).tiny)
    centre = float((precision * estimates).sum() / precision.sum())
    gap = excess_variance((estimates - centre) ** 2, own + shared, signal**2)
    shared = shared + gap * signal**2
    precision = 1 / (own + shared).clamp_min(torch.finfo(torch.float64).tiny)
    weight = precision / precision.sum()
    error = math.sqrt(float((weight**2 * own).sum()) + float((weight * shared.sqrt()).sum()) ** 2)
    return float((weight * estimates).sum()), error


def _upstream(layers: Sequence[LayerMismatch], energies: Sequence[tuple[int, float]], variance: float) -> list[float]:
    """The share of noise in what each layer is given: what all calls before it have added, one after the other."""
    shares = [min(variance * count / total, _LARGEST_SHARE) if total else 0.0 for count, total in energies]
    for layer in layers:
        shares[layer.position] = layer.noise_share(variance)
    return [-math.expm1(math.fsum(math.log1p(-share) for share in shares[: layer.position])) for layer in layers]


def _column(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)
