"""The statistics of one normalisation layer, weighed between what noise predicts and what the inputs show.

All of it is per channel. `V = v + epsilon` is the variance a normalisation layer divides by, so that a channel
that is dead in the clean network weighs what it weighs there.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.random_effects import excess_variance
from quietnn.watching.moments import ChannelMoments

_SMALLEST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Prediction:
    """What is known of a layer's statistics before looking at its outputs."""

    mean: Tensor  # the clean mean, carried through the denoiser
    variance: Tensor  # the same for the variance
    mean_shift: Tensor  # prior variance of the shift of the mean, `sigma^2 sum_k E[x_k]^2`
    variance_growth: Tensor  # expected growth of the variance, `sigma^2 tr(C)`
    concentration: float  # `q`, which says how far single channels stray from that growth
    upstream: float  # share of the input's power that is noise from earlier layers, at most
    traced: bool = True  # whether the layer in front is known; if not, only the sample says how large changes are


@dataclass(frozen=True)
class Gap:
    """How far the receiver's inputs are from the sender's, seen where noise cannot explain it.

    A sender's statistics were taken over its training images, crops and flips included; the receiver's inputs have
    other moments even without noise, and that difference is not to be followed.
    """

    mean: float = 0.0  # variance of the difference of means, as a share of `V`
    common: float = 0.0  # square of the difference of log variances that all channels share
    spread: float = 0.0  # variance of the difference of log variances between channels

    @property
    def is_believable(self) -> bool:
        """Whether two sets of inputs of one kind can be so far apart: a standard deviation, a factor of e."""
        return self.mean <= 1 and self.common <= 1


@dataclass(frozen=True)
class Posterior:
    """The statistics to use, (channels,) in float64, and how much of the sample went into them."""

    mean: Tensor
    variance: Tensor  # not negative
    mean_weight: float  # average weight of the sample's means (0: as predicted, 1: as re-estimated)
    variance_weight: float  # the same of what single channels show of their variances
    common_weight: float  # weight of the change of variance that all channels share
    gap: Gap  # to carry to later layers
    own_shift: Tensor  # what the noise on the layer in front has most likely done to the means


def posterior(prediction: Prediction, sample: ChannelMoments, gap: Gap | None, *, epsilon: float) -> Posterior:
    """Weigh prediction against sample, each by its precision.

        mean'     = mean + k (sample mean - mean)          k = (p + a V) / (p + a V + s + g V)
        variance' = (V (1 + f) exp(common' + k' (rest))) - epsilon

    The gap between the receiver's inputs and the sender's is known if some layer has shown it.
    """
    measures_gap = prediction.traced and prediction.upstream == 0
    known_gap = None if measures_gap else (gap or Gap())
    mean, own_shift, mean_weight, mean_gap = _mean(prediction, sample, known_gap, epsilon)
    variance, weights, common, spread = _variance(prediction, sample, known_gap, epsilon)
    seen = known_gap or Gap(mean_gap, common, spread)
    return Posterior(mean, variance, mean_weight, weights[0], weights[1], seen, own_shift)


def _mean(
    prediction: Prediction, sample: ChannelMoments, gap: Gap | None, epsilon: float
) -> tuple[Tensor, Tensor, float, float]:
    """The means, own noise's share of their deviation, the sample's average weight, and the excess beyond all that."""
    scale = (prediction.variance + epsilon).clamp_min(_SMALLEST)
    deviation = sample.mean - prediction.mean
    excess = excess_variance(deviation**2, prediction.mean_shift + sample.mean_error, scale)
    from_gap, from_upstream = _split(excess, gap.mean if gap else None, _bound(prediction, prediction.upstream))
    weight = _weight(prediction.mean_shift + from_upstream * scale, sample.mean_error + from_gap * scale)
    own = _weight(prediction.mean_shift, sample.mean_error + excess * scale) * deviation
    return prediction.mean + weight * deviation, own, float(weight.mean()), excess


def _variance(
    prediction: Prediction, sample: ChannelMoments, gap: Gap | None, epsilon: float
) -> tuple[Tensor, tuple[float, float], float, float]:
    """The variances, the weights of the sample (single, common), and the gap as this layer shows it."""
    scale = (prediction.variance + epsilon).clamp_min(_SMALLEST)
    growth = prediction.variance_growth / scale
    predicted = torch.log1p(growth)
    deviation = torch.log((sample.variance + epsilon).clamp_min(_SMALLEST) / scale) - predicted
    own = prediction.concentration * (4 * growth + 2 * growth**2) / (1 + growth) ** 2
    error = sample.variance_error / (sample.variance + epsilon).clamp_min(_SMALLEST) ** 2
    common, _ = _weighted_mean(deviation, own + error)
    excess = excess_variance((deviation - common) ** 2, own + error, torch.ones_like(own))
    common, common_error = _weighted_mean(deviation, own + error + excess)
    shown = max(common**2 - sample.common_error - common_error, 0.0)

    centre, width = _signal_loss(prediction.upstream)
    if not prediction.traced:
        centre, width = 0.0, max(shown - (gap.common if gap else 0.0), 0.0) if prediction.upstream else 0.0
    doubt = sample.common_error + (gap.common if gap else shown)
    common_weight = width / (width + doubt) if width else 0.0
    from_gap, from_upstream = _split(excess, gap.spread if gap else None, _bound(prediction, width))
    weight = _weight(own + from_upstream, error + from_gap)
    change = predicted + centre + common_weight * (common - centre) + weight * (deviation - common)
    variance = (prediction.variance + scale * torch.expm1(change)).clamp_min(0)
    return variance, (float(weight.mean()), common_weight), shown, excess


def _signal_loss(upstream: float) -> tuple[float, float]:
    """Mean and variance of the log of the power that survives noise upstream.

    A share `u` of the input is noise that the weights may pass on or cancel, so between `1 - u` and all of the power
    survives: uniform on that range, to first order in the log.
    """
    return math.log1p(-upstream / 2), (upstream / (2 - upstream)) ** 2 / 3


def _bound(prediction: Prediction, bound: float) -> float:
    """How much of an excess noise upstream can explain: nothing without noise, no limit where nothing is known."""
    return bound if prediction.traced or prediction.upstream == 0 else math.inf


def _split(excess: float, gap: float | None, bound: float) -> tuple[float, float]:
    """An excess as the part that is a gap and the part that noise upstream explains."""
    from_gap = excess if gap is None else min(gap, excess)
    return from_gap, min(excess - from_gap, bound)


def _weight(followed: Tensor, doubted: Tensor) -> Tensor:
    """`followed / (followed + doubted)`, and 0 where nothing is to be followed."""
    return torch.where(followed > 0, followed / (followed + doubted), torch.zeros_like(followed))


def _weighted_mean(values: Tensor, variances: Tensor) -> tuple[float, float]:
    """The mean with the least variance, and that variance."""
    precision = 1 / variances.clamp_min(_SMALLEST)
    return float((precision * values).sum() / precision.sum()), float(1 / precision.sum())
