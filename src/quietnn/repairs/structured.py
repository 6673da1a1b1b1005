"""Convolutions denoised under the structured prior, then calibrated: the two repairs that need no labels, in one."""

import copy

import torch
from torch import nn

from quietnn.batches import Inputs
from quietnn.noise import NoiseVariance
from quietnn.repairs.affine import AffineDenoiser
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.grouped import Reception
from quietnn.repairs.kernels import LAMBDA_PRIME, believable_noise, structured_denoisers
from quietnn.targets import noisy_weights, with_weights
from quietnn.watching.visits import survey
from quietnn.weights import NORMALISATION_TYPES, check_module


@torch.inference_mode(False)
def calibrate_structured(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    lambda_prime: float = LAMBDA_PRIME,
    balanced_classes: bool = False,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> nn.Module:
    """Denoise every convolution under the structured prior, then fit the BatchNorms to what is left of the noise.

    One forward pass and no labels; `calibrate` tells what the inputs have to be. A layer that holds more noise
    than signal gains most; where noise is weak the result is that of `calibrate` (docs/structured.md).
    So it is where a BatchNorm is called more than once: calibration leaves that one alone, and a scale that the
    convolutions in front of it lost would not be given back. A convolution without a BatchNorm behind it is kept.

    Args:
        model: the network as received; it stays as it is.
        inputs: about a hundred inputs without labels.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        lambda_prime: the population compensator: 1 leaves the weights as they came, 0 is MMSE.
        balanced_classes: see `calibrate`.
        normalisation: module types whose parameters carry no noise.
    """
    check_module(model, normalisation=normalisation)
    model = copy.deepcopy(model)
    found = survey(model, inputs)
    if found.shared:
        return calibrate(
            model,
            inputs,
            noise_variance=noise_variance,
            balanced_classes=balanced_classes,
            normalisation=normalisation,
            in_place=True,
        )
    weights = noisy_weights(model, normalisation=normalisation)
    noise_variance = believable_noise(weights, noise_variance)
    maps = structured_denoisers(
        model, noise_variance=noise_variance, lambda_prime=lambda_prime, normalisation=normalisation
    )
    denoisers = {name: one if name in found.feeders else AffineDenoiser(1.0, 0.0) for name, one in maps.items()}
    layers = Reception.of(weights, noise_variance, groups="layerwise")
    return calibrate(
        with_weights(model, layers.estimate(denoisers), in_place=True),
        inputs,
        noise_variance=noise_variance,
        denoisers=denoisers,
        groups="layerwise",
        balanced_classes=balanced_classes,
        normalisation=normalisation,
        in_place=True,
    )
