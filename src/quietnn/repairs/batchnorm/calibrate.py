"""The repairs that fit the statistics of every BatchNorm to noisy weights by forward passes; no labels."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.evidence import Evidence, some_inputs
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import MMSE, AffineDenoiser
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.means import take_out
from quietnn.repairs.batchnorm.parameter_noise import Denoisers, parameter_noise
from quietnn.repairs.batchnorm.rule import CalibrationReport, NoiseAware
from quietnn.repairs.grouped import grouped
from quietnn.repairs.kernels import believable_noise, structured_denoisers
from quietnn.targets import with_weights
from quietnn.watching.samples import Visit
from quietnn.watching.survey import survey
from quietnn.watching.visits import visit_batch_norms
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

    The clean statistics arrived safely and the noise power is known, so each channel's mean and variance have a prior.
    The inputs give a sample of them. Both are weighed by their precisions (docs/how-it-works/calibration.md). Each
    layer sees inputs that are calibrated already. Without noise the clean statistics come back bit for bit. A BatchNorm
    that the network calls more than once keeps its statistics.

    Args:
        what: the network as received, or denoised; its BatchNorms hold the clean statistics.
        inputs: at least two inputs of the kind the network is for, about 100 if you can, in any form of `Evidence`. Up
            to 256 take one forward pass. More are run in batches, with one batch and one layer's moments in memory.
            That takes about half as many passes as there are BatchNorms: each needs one up to where it stands.
        noise_variance: `sigma_z^2`, the variance of the noise on every received weight; or by tensor or group name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        denoisers: the affine maps that were applied to the received weights, one for all or one by group.
        groups: what the names of the denoisers refer to: `"whole"`, `"layerwise"`, or tensor names by group.
        balanced_classes: True if all classes are about equally common among the inputs. The last layer's bias is then
            corrected too, if noise made the network prefer some classes. Labels are not needed.
        in_place: set the statistics of the network itself instead of those of a copy.

    Returns:
        The network with new running statistics. Weights (but for the last bias, with `balanced_classes`), modes,
        counters and momentum stay. `details["report"]` says how each layer was weighed. A pass that stops at a
        BatchNorm counts in `passes` as the share of layers that it ran.

    Raises:
        QuietnnError: if there is no BatchNorm, fewer than two inputs, or something is not finite. The network is then
            as it was.

    >>> from torch import nn
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
    rule = _rule(observation.on(result), denoisers, groups)
    found, passes = visit_batch_norms(result, evidence, rule, rule.recentre if balanced_classes else None)
    report = CalibrationReport(tuple(rule.layers), rule.head_weight, found.shared)
    name = "calibrated_balanced" if balanced_classes else "calibrated"
    return Repaired(result, name, passes, {"report": report})


def _rule(observation: Observation[Any, Any], denoisers: Denoisers | None, groups: str | Partition) -> NoiseAware:
    noise = parameter_noise(observation, denoisers=denoisers, groups=groups)
    return NoiseAware(noise, is_rounded=observation.rounded)


@torch.inference_mode(False)
def mmse_calibrated(observation: Observation[Any, Any], evidence: Evidence) -> Repaired:
    """MMSE layer by layer, each weight by its own noise, then calibrated: a block lost in a fade is left out."""
    denoisers = grouped(observation, "layerwise").denoisers(MMSE)
    return _denoised_and_calibrated(observation, evidence, denoisers, "mmse_calibrated")


@torch.inference_mode(False)
def calibrate_structured(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    by_means: bool = True,
) -> Repaired:
    """Denoise every convolution under the structured prior, then calibrate the BatchNorms for the remaining noise.

    It needs no labels. `calibrate` says what the inputs have to be and how many passes they take; this takes twice as
    many. Layers that hold more noise than signal gain most. Where noise is weak, the result is that of `calibrate`
    (docs/how-it-works/structured.md). It is also that of `calibrate` if a BatchNorm is called more than once:
    calibration leaves that one alone, and nothing would restore the scale that convolutions in front of it lost. A
    convolution without a BatchNorm behind it is kept.

    Args:
        what: the network as received.
        inputs: about a hundred inputs without labels, in any form of `Evidence`.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        by_means: take out, too, the noise that the clean means of the BatchNorms tell; it costs the second pass.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> calibrate_structured(network, torch.rand(10, 1, 8, 8), noise_variance=0.01).name
    'structured'
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "calibrate_structured")
    network = copy.deepcopy(observation.model)  # which is called in place of the user's own
    found = survey(network, evidence.first(2))
    if found.shared:
        return replace(calibrate(observation.on(network), evidence, in_place=True), name="structured")
    believed = observation.with_noise(believable_noise(observation.weights, observation.known_noise))
    maps = structured_denoisers(believed)
    denoisers = {name: one if name in found.feeders else AffineDenoiser(1.0, 0.0) for name, one in maps.items()}
    return _denoised_and_calibrated(believed, evidence, denoisers, "structured", by_means=by_means)


def _denoised_and_calibrated(
    observation: Observation[Any, Any],
    evidence: Evidence,
    denoisers: dict[str, AffineDenoiser],
    name: str,
    *,
    by_means: bool = False,
) -> Repaired:
    network = with_weights(observation.model, grouped(observation, "layerwise").estimate(denoisers))
    passes = 0.0
    if by_means:
        calibrated = copy.deepcopy(network)
        rule = _rule(observation.on(calibrated), denoisers, "layerwise")
        passes = visit_batch_norms(calibrated, evidence, rule)[1]
        names = {layer: name for name, layer in calibrated.named_modules()}
        take_out(replace(shift, layer=network.get_submodule(names[shift.layer])) for shift in rule.shifts)
    made = calibrate(observation.on(network), evidence, denoisers=denoisers, groups="layerwise", in_place=True)
    return replace(made, name=name, passes=made.passes + passes)


@torch.inference_mode(False)
def re_estimate(what: object, inputs: object) -> Repaired:
    """Replace BatchNorm's statistics by those of the inputs: the baseline that ignores the noise.

    Args:
        what: the network as received.
        inputs: at least two inputs, in any form of `Evidence`.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)).eval()
    >>> re_estimate(network, torch.tensor([[1.0], [3.0]])).model[0].running_mean
    tensor([2.])
    """
    observation, evidence = observe(what), some_inputs(inputs, "re_estimate")
    result = copy.deepcopy(observation.model)

    def seen(visit: Visit) -> tuple[Tensor, Tensor]:
        return visit.channels.mean, visit.channels.variance

    return Repaired(result, "re_estimated", visit_batch_norms(result, evidence, seen)[1])
