"""The rule of calibration: how the statistics of each BatchNorm are weighed, and a report of it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidWeights
from quietnn.noise import mean_of
from quietnn.repairs.batchnorm.means import Shift
from quietnn.repairs.batchnorm.parameter_noise import CLEAN, ParameterNoise, carried
from quietnn.repairs.batchnorm.weighing import Gap, Posterior, Prediction, posterior
from quietnn.repairs.head import recentre
from quietnn.repairs.rounding import is_on_a_grid
from quietnn.watching.samples import Arrival, HeadSample, Visit
from quietnn.watching.survey import Feeder

_LARGEST_SHARE = 1 - 1e-9
_FEWEST_INPUTS = 10
"""Fewer do not tell a gap from chance."""
_SMALLEST = 1e-30


@dataclass(frozen=True)
class CalibratedLayer:
    """How the statistics of one BatchNorm were weighed.

    The layer in front is None where it could not be traced (a sum, a concatenation, a layer of another kind), so that
    only the sample says how large the changes are. Weights are 0 for what was predicted, 1 for what the sample shows.
    """

    name: str
    feeder: str | None
    noise_share: float  # the part of the predicted variance that is this layer's own noise
    upstream_share: float  # the part of the inputs that is noise of earlier layers, at most
    mean_weight: float  # an average
    variance_weight: float  # the same for the variances of single channels
    common_weight: float  # the same for the change of variance that all channels share


@dataclass(frozen=True)
class CalibrationReport:
    """How each layer was weighed, in the order of the forward pass."""

    layers: tuple[CalibratedLayer, ...]
    head_weight: float = 0.0  # how much of the differences between the classes' mean outputs was taken out
    shared: tuple[str, ...] = ()  # BatchNorms that are called more than once and were left as they were

    def __str__(self) -> str:
        """A table, one line for each layer, and what its numbers are."""
        width = max(map(len, (*(layer.name for layer in self.layers), *self.shared)), default=0)
        lines = [
            f"{layer.name:{width}}  own noise {_percent(layer.noise_share)}  "
            f"earlier noise {_percent(layer.upstream_share)}  measured: means {_percent(layer.mean_weight)}, "
            f"variances {_percent(layer.variance_weight)}, their average {_percent(layer.common_weight)}"
            + ("" if layer.feeder else "  (layer in front unknown)")
            for layer in self.layers
        ]
        lines += [f"{name:{width}}  called more than once, left as it was" for name in self.shared]
        return "\n".join(lines)


def _percent(share: float) -> str:
    """A share that is never below zero; rounding may have left a minus in front of nothing."""
    return f"{max(0.0, share):4.0%}"


class NoiseAware:
    """The rule of the visits: it remembers the gap it has seen and the noise it has passed."""

    def __init__(self, noise: dict[int, ParameterNoise], *, is_rounded: bool | None = None) -> None:
        self._told_rounded = is_rounded
        self.layers: list[CalibratedLayer] = []
        self.shifts: list[Shift] = []
        self.head_weight = 0.0
        self._noise = noise
        self._gap: Gap | None = None
        self._is_noise: bool | None = None
        """Whether the first layer that shows an unbelievable gap has noise on it; None until there is one."""
        self._losses: list[float] = []
        """-log of the share of the signal's power that each call of a layer leaves."""

    def __call__(self, visit: Visit) -> tuple[Tensor, Tensor]:
        sample = visit.channels
        if not sample.is_finite:
            raise InvalidWeights(
                f"what enters {visit.name} is not finite; the noise has blown up the network before it, "
                "denoise the weights first"
            )
        feeder = visit.feeder
        upstream = self._upstream(visit)
        prediction = self._predict(visit, feeder, upstream) if feeder else _unknown(visit, upstream)
        result = posterior(prediction, sample, self._gap, epsilon=visit.epsilon)
        if prediction.traced:
            self._gap = result.gap
        if feeder and upstream == 0 and not result.gap.is_believable and self._is_noise is None:
            self._is_noise = not self._is_rounded(feeder, prediction, visit)
        if self._is_noise is False:
            result = Posterior(sample.mean, sample.variance, 1.0, 1.0, 1.0, Gap(), torch.zeros_like(sample.mean))
        own_share = self._own_share(prediction, visit)
        if feeder:
            weight = self._of(feeder.layer, "weight")
            if mean_of(weight.variance) > 0:
                of_weight = weight.variance * visit.patches.squared_means  # the rest is the bias's
                shift = result.own_shift * of_weight / prediction.mean_shift.clamp_min(_SMALLEST)
                self.shifts.append(Shift(feeder.layer, shift, visit.patches.entries))
            self._losses[feeder.position] = -math.log1p(-min(own_share, _LARGEST_SHARE))
        weights = (result.mean_weight, result.variance_weight, result.common_weight)
        self.layers.append(CalibratedLayer(visit.name, feeder.name if feeder else None, own_share, upstream, *weights))
        return result.mean, result.variance

    def recentre(self, end: HeadSample) -> None:
        """Correct the last layer's bias for classes that are equally common."""
        weight, bias, upstream = self._of(end.layer, "weight"), self._of(end.layer, "bias"), self._upstream(end)
        self.head_weight = recentre(end, weight=weight, bias=bias, upstream=upstream)

    def _upstream(self, at: Arrival) -> float:
        """The share of noise in what a layer is given: what all calls before it have added, one after the other."""
        for layer in at.called[len(self._losses) :]:
            self._losses.append(-math.log1p(-min(self._share(layer), _LARGEST_SHARE)))
        return -math.expm1(-sum(self._losses[: at.feeder.position] if at.feeder else self._losses))

    def _predict(self, visit: Visit, feeder: Feeder, upstream: float) -> Prediction:
        weight, bias = self._of(feeder.layer, "weight"), self._of(feeder.layer, "bias")
        patches = visit.patches
        mean, variance = carried(visit, feeder, weight, bias)
        return Prediction(
            mean=mean,
            variance=variance,
            mean_shift=weight.variance * patches.squared_means + bias.variance,
            variance_growth=weight.variance * patches.variances,
            concentration=visit.concentration if mean_of(weight.variance) > 0 else 0.0,
            upstream=upstream,
        )

    def _is_rounded(self, feeder: Feeder, prediction: Prediction, visit: Visit) -> bool:
        """Whether an unbelievable gap may be the work of rounding, an error that follows the weights.

        Noise leaves no two weights alike; and an error that follows the `n` weights of a channel adds
        `n sigma^2 tr(C)` to its variance at most, or takes all of it away. An observation may tell it.
        """
        weight, noise = feeder.layer.weight, self._of(feeder.layer, "weight")
        assert isinstance(weight, Tensor)
        growth = prediction.variance_growth / (prediction.variance + visit.epsilon).clamp_min(_SMALLEST)
        if visit.num_images < _FEWEST_INPUTS or not weight[0].numel() * float(growth.median()) > 1:
            return False
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


def _unknown(visit: Visit, upstream: float) -> Prediction:
    nothing = torch.zeros_like(visit.mean, dtype=torch.float64)
    return Prediction(visit.mean.double(), visit.variance.double(), nothing, nothing, 0.0, upstream, traced=False)
