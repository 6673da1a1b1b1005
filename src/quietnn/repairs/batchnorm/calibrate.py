"""Noise-aware calibration: the statistics of every BatchNorm, fitted to the noisy weights by forward passes."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.evidence import Evidence, some_inputs
from quietnn.noise import NoiseVariance, mean_of
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import MMSE
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.parameter_noise import CLEAN, Denoisers, ParameterNoise, parameter_noise
from quietnn.repairs.batchnorm.report import CalibratedLayer, CalibrationReport
from quietnn.repairs.batchnorm.shift import carried
from quietnn.repairs.batchnorm.weighing import Gap, Prediction, posterior, re_estimated
from quietnn.repairs.grouped import grouped
from quietnn.repairs.head import recentre
from quietnn.repairs.rounding import is_on_a_grid
from quietnn.targets import with_weights
from quietnn.watching.visits import Arrival, Feeder, Visit, visit_batch_norms
from quietnn.weights import Partition


@torch.inference_mode(False)
def calibrate(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    denoisers: Denoisers | None = None,
    groups: str | Partition = "whole",
    balanced_classes: bool = False,
    in_place: bool = False,
) -> Repaired:
    """Fit the running statistics of every BatchNorm to noisy weights, with a few inputs and no labels.

    The clean statistics arrived safely and the noise power is known, so each channel's mean and variance have a
    prior; the inputs give a sample of them; the two are weighed by their precisions (docs/calibration.md). Each layer
    sees inputs that are calibrated already. Without noise the clean statistics come back bit for bit. A BatchNorm that
    the network calls more than once keeps its statistics.

    Args:
        what: the network as received, or denoised; its BatchNorms hold the clean statistics.
        inputs: at least two inputs of the kind the network is for, about 100 if you can, in any form of `Evidence`. Up
            to 256 take one forward pass. More are run in batches, each BatchNorm by a pass up to where it stands: about
            half as many passes as there are BatchNorms, with one batch and one layer's moments in memory.
        noise_variance: `sigma_z^2`, the variance of the noise on every received weight; or by tensor or group name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        denoisers: the affine maps that were applied to the weights since, one for all or one by group.
        groups: what the denoisers' names stand for: `"whole"`, `"layerwise"`, or tensor names by group.
        balanced_classes: say that all classes are about equally common among the inputs; then the last layer's bias
            is corrected too, where noise made it prefer some of them. The labels themselves are not needed.
        in_place: set the statistics of the network itself instead of those of a copy.

    Returns:
        The network with new running statistics; weights (the last bias aside, if asked for), modes, counters and
        momentum as they were. `details["report"]` says how each layer was weighed; a pass that stops at a BatchNorm
        counts in `passes` as the share of layers that it ran.

    Raises:
        QuietnnError: if there is no BatchNorm, fewer than two inputs, or something is not finite. The network is then
            as it was.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    >>> same = calibrate(network, torch.rand(10, 3), noise_variance=0.0).model
    >>> torch.equal(same[1].running_var, network[1].running_var)
    True
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "calibrate")
    model = observation.model
    if in_place and observation.as_received is not None:
        raise InvalidConfig(
            "a gain or offset was undone in a copy, so nothing can be written in place; leave in_place out"
        )
    result = model if in_place else copy.deepcopy(model)
    rule = _NoiseAware(
        parameter_noise(observation.on(result), denoisers=denoisers, groups=groups), is_rounded=observation.rounded
    )
    visited = visit_batch_norms(result, evidence, rule, rule.recentre if balanced_classes else None)
    report = CalibrationReport(tuple(rule.layers), rule.head_weight, visited.shared)
    name = "calibrated_balanced" if balanced_classes else "calibrated"
    return Repaired(result, name, visited.passes, {"report": report})


@torch.inference_mode(False)
def mmse_calibrated(observation: Observation[Any, Any], evidence: Evidence) -> Repaired:
    """MMSE layer by layer, each weight by its own noise, then calibrated: a block lost in a fade is left out."""
    layers = grouped(observation, "layerwise")
    denoisers = layers.denoisers(MMSE)
    network = with_weights(observation.model, layers.estimate(denoisers))
    made = calibrate(observation.on(network), evidence, denoisers=denoisers, groups="layerwise", in_place=True)
    return replace(made, name="mmse_calibrated")


class _NoiseAware:
    """The rule of the visits: it remembers the gap it has seen and the noise it has passed."""

    def __init__(self, noise: dict[int, ParameterNoise], *, is_rounded: bool | None = None) -> None:
        self._told_rounded = is_rounded
        self.layers: list[CalibratedLayer] = []
        self.head_weight = 0.0
        self._noise = noise
        self._gap: Gap | None = None
        self._is_noise: bool | None = None
        """Whether the first layer that shows an unbelievable gap has noise on it; None until there is one."""
        self._losses: list[float] = []
        """-log of the share of the signal's power that each call of a layer leaves."""

    def __call__(self, visit: Visit) -> tuple[Tensor, Tensor]:
        sample = visit.sample.channels
        if not sample.is_finite:
            raise InvalidWeights(
                f"what enters {visit.name} is not finite; the noise has blown up the network before it, "
                "denoise the weights first"
            )
        feeder = visit.feeder
        upstream = self._upstream(feeder, visit.called)
        prediction = self._predict(visit, feeder, upstream) if feeder else _unknown(visit, upstream)
        result = posterior(prediction, sample, self._gap, epsilon=visit.epsilon)
        if prediction.traced:
            self._gap = result.gap
        if feeder and upstream == 0 and not result.gap.is_believable and self._is_noise is None:
            self._is_noise = not self._is_rounded(feeder, prediction, visit)
        if self._is_noise is False:
            result = re_estimated(sample)
        own_share = self._own_share(prediction, visit)
        if feeder:
            self._losses[feeder.position] = -math.log1p(-min(own_share, _LARGEST_SHARE))
        self.layers.append(
            CalibratedLayer(
                visit.name,
                feeder.name if feeder else None,
                own_share,
                upstream,
                result.mean_weight,
                result.variance_weight,
                result.common_weight,
            )
        )
        return result.mean, result.variance

    def recentre(self, end: Arrival) -> None:
        """Correct the last layer's bias for classes that are equally common."""
        layer = end.feeder.layer if end.feeder else None
        self.head_weight = recentre(
            end.sample,
            weight=self._of(layer, "weight"),
            bias=self._of(layer, "bias"),
            upstream=self._upstream(end.feeder, end.called),
        )

    def _upstream(self, feeder: Feeder | None, called: Sequence[nn.Module]) -> float:
        """The share of noise in what a layer is given: what all calls before it have added, one after the other."""
        for layer in called[len(self._losses) :]:
            self._losses.append(-math.log1p(-min(self._share(layer), _LARGEST_SHARE)))
        return -math.expm1(-sum(self._losses[: feeder.position] if feeder else self._losses))

    def _predict(self, visit: Visit, feeder: Feeder, upstream: float) -> Prediction:
        weight, bias = self._of(feeder.layer, "weight"), self._of(feeder.layer, "bias")
        patches = visit.sample.patches
        mean, variance = carried(visit, feeder, weight, bias)
        return Prediction(
            mean=mean,
            variance=variance,
            mean_shift=weight.variance * patches.squared_means + bias.variance,
            variance_growth=weight.variance * patches.variances,
            concentration=visit.sample.concentration if weight.is_noisy else 0.0,
            upstream=upstream,
        )

    def _is_rounded(self, feeder: Feeder, prediction: Prediction, visit: Visit) -> bool:
        """Whether an unbelievable gap may be the work of rounding, an error that follows the weights.

        Noise leaves no two weights alike; and an error that follows the `n` weights of a channel adds
        `n sigma^2 tr(C)` to its variance at most, or takes all of it away.
        """
        weight, noise = feeder.layer.weight, self._of(feeder.layer, "weight")
        assert isinstance(weight, Tensor)
        growth = prediction.variance_growth / (prediction.variance + visit.epsilon).clamp_min(_SMALLEST)
        return (
            visit.sample.num_images >= _FEWEST_INPUTS
            and weight[0].numel() * float(growth.median()) > 1
            and self._is_on_a_grid(weight, noise)
        )

    def _is_on_a_grid(self, weight: Tensor, noise: ParameterNoise) -> bool:
        """Whether the weights were rounded: as the observation tells, else as they show."""
        if self._told_rounded is not None:
            return self._told_rounded
        return noise.was_on_a_grid or is_on_a_grid(weight, math.sqrt(mean_of(noise.variance)))

    def _own_share(self, prediction: Prediction, visit: Visit) -> float:
        """The share of noise that the layer in front adds to what leaves this BatchNorm.

        Where noise differs between channels each counts alike, for each leaves at the size it had in the clean network:
        one lost in a fade would otherwise stand for all, or for nothing where MMSE has shrunk it.
        """
        growth = prediction.variance_growth
        total = prediction.variance + growth + visit.epsilon
        weight = self._of(visit.feeder.layer if visit.feeder else None, "weight")
        if isinstance(weight.variance, Tensor):
            return float((growth / total.clamp_min(_SMALLEST)).mean())
        return float(growth.sum()) / float(total.sum()) if float(total.sum()) else 0.0

    def _of(self, layer: nn.Module | None, name: str) -> ParameterNoise:
        return self._noise.get(id(getattr(layer, name, None)), CLEAN)

    def _share(self, layer: nn.Module) -> float:
        """The share of noise in a layer's own parameters; what stands for its outputs until a BatchNorm tells."""
        total, noise = 0.0, 0.0
        for parameter in layer.parameters(recurse=False):
            variance = mean_of(self._noise.get(id(parameter), CLEAN).variance)
            if variance:
                noise += variance * parameter.numel()
                total += float(parameter.detach().double().square().sum())
        return noise / max(total, noise) if noise else 0.0


_LARGEST_SHARE = 1 - 1e-9
_FEWEST_INPUTS = 10
"""Fewer do not tell a gap from chance."""
_SMALLEST = 1e-30


def _unknown(visit: Visit, upstream: float) -> Prediction:
    nothing = torch.zeros_like(visit.mean, dtype=torch.float64)
    return Prediction(visit.mean.double(), visit.variance.double(), nothing, nothing, 0.0, upstream, traced=False)
