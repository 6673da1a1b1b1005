"""Convolutions denoised under the structured prior, then calibrated: the two repairs that need no labels, in one."""

import copy
from dataclasses import replace

import torch

from quietnn.evidence import some_inputs
from quietnn.noise import NoiseVariance
from quietnn.observation import observe
from quietnn.repairs.affine import AffineDenoiser
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.grouped import grouped
from quietnn.repairs.kernels import LAMBDA_PRIME, believable_noise, structured_denoisers
from quietnn.targets import with_weights
from quietnn.watching.survey import survey


@torch.inference_mode(False)
def calibrate_structured(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    lambda_prime: float = LAMBDA_PRIME,
    balanced_classes: bool = False,
) -> Repaired:
    """Denoise every convolution under the structured prior, then fit the BatchNorms to what is left of the noise.

    No labels; `calibrate` tells what the inputs have to be and how many passes they take. A layer that holds more noise
    than signal gains most; where noise is weak the result is that of `calibrate` (docs/structured.md). The same applies
    where a BatchNorm is called more than once: calibration leaves that one alone, and a scale that the convolutions in
    front of it lost would not be given back. A convolution without a BatchNorm behind it is kept.

    Args:
        what: the network as received.
        inputs: about a hundred inputs without labels, in any form of `Evidence`.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        lambda_prime: the population compensator: 1 leaves the received weights, 0 is MMSE.
        balanced_classes: see `calibrate`.

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
        made = calibrate(observation.on(network), evidence, balanced_classes=balanced_classes, in_place=True)
        return replace(made, name="structured")
    believed = observation.with_noise(believable_noise(observation.weights, observation.known_noise))
    maps = structured_denoisers(believed, lambda_prime=lambda_prime)
    denoisers = {name: one if name in found.feeders else AffineDenoiser(1.0, 0.0) for name, one in maps.items()}
    made = calibrate(
        believed.on(with_weights(network, grouped(believed, "layerwise").estimate(denoisers), in_place=True)),
        evidence,
        denoisers=denoisers,
        groups="layerwise",
        balanced_classes=balanced_classes,
        in_place=True,
    )
    return replace(made, name="structured")
