"""The methods a sweep compares: each turns what a receiver holds into a network."""

import math
from collections.abc import Callable

from torch import nn

from quietnn.errors import InfeasibleTemperatures
from quietnn.experiments.losses import labelled, loss_on
from quietnn.experiments.receiver import SEARCHES, Outcome, Receiver, Search
from quietnn.noise import noise_by_group
from quietnn.repairs.affine import MMSE, Temperatures
from quietnn.repairs.auto import auto, auto_labelled
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.batchnorm.re_estimation import re_estimate
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.calibrated_starts import calibrated_starts
from quietnn.repairs.denoise import denoise
from quietnn.repairs.finetuning import finetune
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.posterior import posterior
from quietnn.repairs.self_training import self_train
from quietnn.repairs.structured import calibrate_structured
from quietnn.repairs.temperatures.gradient import tune_by_gradient
from quietnn.repairs.temperatures.layerwise import start_from
from quietnn.repairs.temperatures.result import Trial, TuningResult
from quietnn.targets import with_weights

__all__ = ["METHODS", "SEARCHES", "Outcome", "Receiver", "Search"]


def _ml(receiver: Receiver) -> Outcome:
    return Outcome(receiver.as_received)


def _mmse(receiver: Receiver) -> Outcome:
    return Outcome(_with(receiver, receiver.whole, Temperatures(0.0)))


def _mmse_at_mean_noise(receiver: Receiver) -> Outcome:
    """MMSE that takes every weight's noise for the mean one; the same as MMSE where all weights have the same."""
    return Outcome(denoise(receiver.model, noise_variance=receiver.noise_variance))


def _mmse_layerwise(receiver: Receiver) -> Outcome:
    return Outcome(_with(receiver, receiver.layers, Temperatures(0.0)))


def _mmse_p(receiver: Receiver) -> Outcome:
    return _whole(receiver, receiver.whole_search_without_beta)


def _mmse_pb(receiver: Receiver) -> Outcome:
    return _whole(receiver, receiver.whole_search)


def _mmse_pb_layerwise(receiver: Receiver) -> Outcome:
    search = receiver.layerwise_search
    num_passes = math.ceil(receiver.whole_search.num_passes + search.num_passes)
    return Outcome(_with(receiver, receiver.layers, search.temperatures), num_passes, search)


def _mmse_pb_oracle(receiver: Receiver) -> Outcome:
    return _mmse_pb(receiver.as_oracle())


def _mmse_pb_reused(receiver: Receiver) -> Outcome:
    """Temperatures tuned at another WNR; where the pole has moved in front of them, the weights as they came."""
    search = receiver.reference.whole_search
    try:
        return Outcome(_with(receiver, receiver.whole, search.temperatures), 0, search)
    except InfeasibleTemperatures:
        return Outcome(receiver.model)


def _calibrated(receiver: Receiver) -> Outcome:
    """The weights as they came, statistics fitted to them with the tuning inputs; their labels are not looked at."""
    model = calibrate(receiver.model, receiver.tuning.inputs, noise_variance=receiver.noise)
    return Outcome(model, num_passes=1)


def _mmse_calibrated(receiver: Receiver) -> Outcome:
    """MMSE layer by layer, each weight by its own noise, then calibrated: a block lost in a fade is left out."""
    denoisers = receiver.layers.denoisers(MMSE)
    model = calibrate(
        with_weights(receiver.model, receiver.layers.estimate(denoisers)),
        receiver.tuning.inputs,
        noise_variance=receiver.noise,
        denoisers=denoisers,
        groups="layerwise",
    )
    return Outcome(model, num_passes=1)


def _branches(receiver: Receiver) -> Outcome:
    """MMSE layer by layer up to the last normalisation of each input; two inputs tell where that is."""
    return Outcome(denoise_branches(receiver.model, receiver.tuning.inputs, noise_variance=receiver.noise))


def _branches_balanced(receiver: Receiver) -> Outcome:
    """The same where the receiver also knows that all classes are equally common; no labels."""
    inputs = receiver.tuning.inputs
    model = denoise_branches(receiver.model, inputs, noise_variance=receiver.noise, balanced_classes=True)
    return Outcome(model, num_passes=1)


def _structured(receiver: Receiver) -> Outcome:
    """Convolutions denoised under the structured prior, then calibrated; no labels."""
    model = calibrate_structured(receiver.model, receiver.tuning.inputs, noise_variance=receiver.noise)
    return Outcome(model, num_passes=1)


def _self_trained(receiver: Receiver) -> Outcome:
    """The structured prior, then weights moved until the network is sure of the inputs; classes equally common."""
    result = self_train(
        receiver.model,
        receiver.tuning.inputs,
        noise_variance=receiver.noise,
        augment=receiver.augment,
        seed=receiver.seed,
    )
    return Outcome(result.model, math.ceil(result.num_passes), chosen=result.start)


def _calibrated_balanced(receiver: Receiver) -> Outcome:
    """The same where the receiver also knows that all classes are equally common."""
    inputs = receiver.tuning.inputs
    model = calibrate(receiver.model, inputs, noise_variance=receiver.noise, balanced_classes=True)
    return Outcome(model, num_passes=1)


def _re_estimated(receiver: Receiver) -> Outcome:
    """Plain re-estimation on the same inputs, the baseline that knows nothing of the noise."""
    return Outcome(re_estimate(receiver.model, receiver.tuning.inputs), num_passes=1)


def _mmse_pb_gradient(receiver: Receiver) -> Outcome:
    """Layerwise temperatures by gradient, from the whole-model optimum."""
    whole, layers = receiver.whole_search, receiver.layers
    noise = noise_by_group(receiver.noise, layers.weights, layers.groups)
    even = Reception.of(layers.weights, noise, groups="layerwise")
    tuned = tune_by_gradient(
        receiver.model,
        loss_on(receiver.tuning, receiver.augment),
        len(receiver.tuning),
        noise_variance=noise,
        start=start_from(whole.temperatures, receiver.scale, even),
        seed=receiver.seed,
    )
    # The steps are those of the centred form, whatever form the searches were asked for.
    model = denoise(
        receiver.model,
        noise_variance=noise,
        groups="layerwise",
        temperatures=tuned.temperatures,
    )
    search = TuningResult.of([Trial(tuned.temperatures, receiver.evaluate(model, receiver.tuning))])
    return Outcome(model, math.ceil(whole.num_passes + tuned.num_passes) + 1, search)


def _posterior(receiver: Receiver) -> Outcome:
    """Every noisy weight adjusted by the labels, within what noise and prior allow."""
    starts = calibrated_starts(receiver.model, receiver.tuning.inputs, noise_variance=receiver.noise)
    result = posterior(
        receiver.model,
        loss_on(receiver.tuning, receiver.augment),
        len(receiver.tuning),
        noise_variance=receiver.noise,
        starts=starts,
        seed=receiver.seed,
    )
    return Outcome(result.model, math.ceil(result.num_passes + len(starts)), chosen=result.chosen)


def _finetuned(receiver: Receiver) -> Outcome:
    """Plain fine-tuning on the same examples: the baseline that knows nothing of the noise."""
    loss = loss_on(receiver.tuning, receiver.augment)
    result = finetune(receiver.model, loss, len(receiver.tuning), seed=receiver.seed)
    return Outcome(result.model, math.ceil(result.num_passes))


def _auto(receiver: Receiver) -> Outcome:
    """Whatever the labelled examples say is best."""
    examples = labelled(receiver.tuning, receiver.augment)
    result = auto_labelled(receiver.model, examples, noise_variance=receiver.noise, seed=receiver.seed)
    return Outcome(
        result.model,
        math.ceil(result.num_passes),
        chosen=result.chosen,
        expected_accuracy=result.expected_accuracy,
        accuracy_at_least=result.accuracy_at_least,
    )


def _auto_unlabelled(receiver: Receiver) -> Outcome:
    """What can be done with the same inputs when their labels are not known."""
    result = auto(receiver.model, noise_variance=receiver.noise, inputs=receiver.tuning.inputs)
    return Outcome(result.model, math.ceil(result.num_passes), chosen=result.chosen)


def _whole(receiver: Receiver, search: TuningResult[Temperatures]) -> Outcome:
    return Outcome(_with(receiver, receiver.whole, search.temperatures), math.ceil(search.num_passes), search)


def _with(receiver: Receiver, reception: Reception, temperatures: Temperatures | GroupTemperatures) -> nn.Module:
    return with_weights(receiver.model, reception.estimate(reception.denoisers(temperatures)))


METHODS: dict[str, Callable[[Receiver], Outcome]] = {
    "ml": _ml,
    "mmse": _mmse,
    "mmse_at_mean_noise": _mmse_at_mean_noise,
    "mmse_layerwise": _mmse_layerwise,
    "mmse_p": _mmse_p,
    "mmse_pb": _mmse_pb,
    "mmse_pb_layerwise": _mmse_pb_layerwise,
    "mmse_pb_oracle": _mmse_pb_oracle,
    "mmse_pb_reused": _mmse_pb_reused,
    "calibrated": _calibrated,
    "calibrated_balanced": _calibrated_balanced,
    "mmse_calibrated": _mmse_calibrated,
    "branches": _branches,
    "branches_balanced": _branches_balanced,
    "structured": _structured,
    "self_trained": _self_trained,
    "re_estimated": _re_estimated,
    "mmse_pb_gradient": _mmse_pb_gradient,
    "posterior": _posterior,
    "finetuned": _finetuned,
    "auto": _auto,
    "auto_unlabelled": _auto_unlabelled,
}
"""Every method a configuration can name. Those called oracle see the test examples."""
