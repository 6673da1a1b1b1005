"""What `auto` can do to a network, from the simplest to the most elaborate."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from quietnn.noise import NoiseVariance, noise_by_group
from quietnn.repairs.affine import ML, Temperatures
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.calibrated_starts import calibrated_starts, has_kernels, has_stored_statistics, scale_is_undone
from quietnn.repairs.denoise import denoise
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.labelled import Labelled
from quietnn.repairs.posterior import posterior
from quietnn.repairs.structured import calibrate_structured
from quietnn.repairs.temperatures.gradient import GradientSettings, tune_by_gradient
from quietnn.repairs.temperatures.layerwise import start_from
from quietnn.repairs.temperatures.racing import race_coarse_to_fine
from quietnn.repairs.temperatures.result import TuningResult
from quietnn.repairs.temperatures.steps import Scale
from quietnn.repairs.temperatures.tune import Judge
from quietnn.targets import noisy_weights
from quietnn.weights import layerwise

Normalisation = tuple[type[nn.Module], ...]


@dataclass(frozen=True)
class Received:
    """A noisy network, what is known of its noise, and the examples a candidate may use.

    Attributes:
        model: the network as received.
        noise: `sigma_z^2`, one number or by tensor.
        normalisation: module types whose parameters carry no noise.
        examples: labelled examples to fit to.
        seed: of orders, splits and augmentation.
    """

    model: nn.Module
    noise: NoiseVariance
    normalisation: Normalisation
    examples: Labelled
    seed: int

    @cached_property
    def raced(self) -> TuningResult[Temperatures]:
        """Whole-model temperatures by racing over the examples."""
        judge = Judge(self.model, self.examples.as_score, self.normalisation)
        whole = self.reception("whole")
        return race_coarse_to_fine(judge.for_some(whole), self.scale, len(self.examples), seed=self.seed)

    @property
    def scale(self) -> Scale:
        """The scale of steps over the whole model."""
        whole = self.reception("whole")
        return Scale(whole.statistics["whole"], whole.noise_variance)

    def reception(self, groups: str) -> Reception:
        """The noisy weights in groups."""
        weights = noisy_weights(self.model, normalisation=self.normalisation)
        return Reception.of(weights, self.noise, groups=groups)

    @property
    def even_layers(self) -> Reception:
        """The noisy weights by layer, each with one noise variance."""
        weights = noisy_weights(self.model, normalisation=self.normalisation)
        noise = noise_by_group(self.noise, weights, layerwise(weights))
        return Reception.of(weights, noise, groups="layerwise")


@dataclass(frozen=True)
class Made:
    """A network that a candidate made, and its cost in forward passes over the examples it was given."""

    model: nn.Module
    num_passes: float


@dataclass(frozen=True)
class Candidate:
    """One way to repair a network.

    Attributes:
        name: what it is called in results.
        make: does it.
        cost: about how many passes over its examples that takes; a backward pass counts two.
        applies: whether it makes sense for a network.
    """

    name: str
    make: Callable[[Received], Made]
    cost: float
    applies: Callable[[nn.Module], bool] = lambda model: True


def _ml(received: Received) -> Made:
    return Made(copy.deepcopy(received.model), 0.0)


def _mmse(groups: str) -> Callable[[Received], Made]:
    def make(received: Received) -> Made:
        model = denoise(
            received.model,
            noise_variance=received.noise,
            groups=groups,
            normalisation=received.normalisation,
        )
        return Made(model, 0.0)

    return make


def _without_labels(repair: Callable[..., nn.Module], num_passes: float) -> Callable[[Received], Made]:
    def make(received: Received) -> Made:
        model = repair(
            received.model,
            received.examples.inputs,
            noise_variance=received.noise,
            normalisation=received.normalisation,
        )
        return Made(model, num_passes)

    return make


def _mmse_pb(received: Received) -> Made:
    model = denoise(
        received.model,
        noise_variance=received.noise,
        temperatures=received.raced.temperatures,
        normalisation=received.normalisation,
    )
    return Made(model, received.raced.num_passes)


def _layerwise(received: Received) -> Made:
    """Layerwise temperatures by gradient: from ML and then calibrated, or, without BatchNorm, from the best whole.

    Tuned and applied at one noise: where it differs within a layer, the layer's mean. Calibration is told the true one.
    """
    layers = received.even_layers
    noise: NoiseVariance = layers.noise_variance if layers.noise is None else layers.noise
    follows = has_stored_statistics(received.model)
    start: GroupTemperatures = dict.fromkeys(layers.groups, ML)
    num_passes = 0.0
    if not follows:
        start = start_from(received.raced.temperatures, received.scale, layers)
        num_passes = received.raced.num_passes
    tuned = tune_by_gradient(
        received.model,
        received.examples.as_loss,
        len(received.examples),
        noise_variance=noise,
        start=start,
        settings=GradientSettings(blended=follows),
        seed=received.seed,
        normalisation=received.normalisation,
    )
    model = denoise(
        received.model,
        noise_variance=noise,
        groups="layerwise",
        temperatures=tuned.temperatures,
        normalisation=received.normalisation,
    )
    if follows:
        model = calibrate(
            model,
            received.examples.inputs,
            noise_variance=received.noise,
            groups="layerwise",
            denoisers=layers.denoisers(tuned.temperatures),
            normalisation=received.normalisation,
        )
        num_passes += 1
    return Made(model, num_passes + tuned.num_passes)


def _posterior(received: Received) -> Made:
    starts = calibrated_starts(
        received.model,
        received.examples.inputs,
        noise_variance=received.noise,
        normalisation=received.normalisation,
    )
    result = posterior(
        received.model,
        received.examples.as_loss,
        len(received.examples),
        noise_variance=received.noise,
        starts=starts,
        seed=received.seed,
        normalisation=received.normalisation,
    )
    return Made(result.model, result.num_passes + len(starts))


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("ml", _ml, 0),
    Candidate("mmse", _mmse("whole"), 0),
    Candidate("mmse_layerwise", _mmse("layerwise"), 0),
    Candidate("branches", _without_labels(denoise_branches, 0.0), 0, scale_is_undone),
    Candidate("calibrated", _without_labels(calibrate, 1.0), 1, has_stored_statistics),
    Candidate("structured", _without_labels(calibrate_structured, 1.0), 1, has_kernels),
    Candidate("mmse_pb", _mmse_pb, 8),
    Candidate("mmse_pb_gradient", _layerwise, 110),
    Candidate("posterior", _posterior, 150),
)
"""In the order of simplicity: fewer numbers taken from the data come first, and win where losses are equal."""
