"""Where a fit may start: networks that need no labels, and that the fit is judged beside."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import QuietnnError
from quietnn.evidence import BATCH_SIZE, Evidence
from quietnn.observation import Observation
from quietnn.repairs.affine import MMSE
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured
from quietnn.repairs.batchnorm.matched import has_same_norms, match
from quietnn.repairs.branches import branch_denoisers, denoise_branches
from quietnn.repairs.directions import denoise_directions
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import Whitened
from quietnn.repairs.grouped import GroupedWeights, grouped
from quietnn.repairs.head import centre_head
from quietnn.repairs.kernels import believable_noise, structured_denoisers
from quietnn.repairs.kinds import has_kernels, has_stored_statistics, normalises_inputs
from quietnn.targets import noisy_weights
from quietnn.weights import Weights


@dataclass(frozen=True)
class Start:
    """A network that steps may begin from."""

    network: nn.Module  # as it would be returned
    weights: Weights  # its noisy weights, where the steps begin; its own tensors, not copies of them
    is_anchor: bool = False  # whether its BatchNorm statistics were fitted to its weights, to be carried along


def as_start(network: nn.Module, observation: Observation[Any, Any], *, is_anchor: bool = False) -> Start:
    return Start(network, noisy_weights(network, noisy=tuple(observation.weights)), is_anchor)


def start_at(weights: Weights, observation: Observation[Any, Any], scratch: Scratch) -> Start:
    """The network at some weights, with BatchNorm statistics between those stored and those of the examples."""
    return as_start(scratch.finish(observation.model, weights), observation)


def starts_of(observation: Observation[Any, Any], evidence: Evidence, scratch: Scratch) -> Iterator[tuple[str, Start]]:
    """All that steps may begin from, by name, made one at a time: what is calibrated comes first."""
    found = False
    for one in repaired(observation, evidence):
        scratch.num_passes += one.passes
        found = True
        yield one.name, as_start(one.model, observation, is_anchor=True)
    if not (found and scratch.follows):
        for name, weights in _estimates(observation, scratch):
            yield name, start_at(weights, observation, scratch)


def starts_beside(
    observation: Observation[Any, Any], evidence: Evidence, scratch: Scratch
) -> Iterator[tuple[str, Start]]:
    """All that steps may begin from where the received weights stay: what a teacher tells, or statistics alone."""
    if has_same_norms(observation.model, evidence.teacher):
        one = match(observation, evidence)
        scratch.num_passes += one.passes
        yield one.name, as_start(one.model, observation, is_anchor=True)
    elif evidence.has_inputs and has_stored_statistics(observation.model):
        one = in_one_pass(calibrate, observation, evidence)
        scratch.num_passes += one.passes
        yield one.name, as_start(one.model, observation, is_anchor=True)
    else:
        yield "blended", start_at(observation.weights, observation, scratch)


def repaired(observation: Observation[Any, Any], evidence: Evidence) -> Iterator[Repaired]:
    """What can be made of a network without labels.

    With BatchNorm the network calibrated, and with its convolutions under the structured prior as well; where each
    input is normalised MMSE by input direction, and that of the branches with a head that prefers no class (labels will
    judge it). Else nothing.
    """
    model = observation.model
    if not evidence.has_inputs:
        return
    if has_stored_statistics(model):
        yield in_one_pass(calibrate, observation, evidence)
    if has_kernels(model):
        # Fits lost 4.6 points from a start without the noise along the mean patch (ResNet18 at -10 dB, one draw).
        yield in_one_pass(partial(calibrate_structured, by_means=False), observation, evidence)
    if normalises_inputs(model, observation.normalisation):
        yield denoise_directions(observation, evidence, scale_logits=False)  # fits set the scale by themselves
        branches = denoise_branches(observation, evidence).model
        with suppress(QuietnnError):  # no head that these inputs can centre
            # A bias that carries no noise is no part of a start: steps are taken on the received network.
            if centre_head(observation, branches, evidence) in observation.weights:
                yield Repaired(branches, "centred", 1.0)


def in_one_pass(make: Callable[..., Repaired], observation: Observation[Any, Any], evidence: Evidence) -> Repaired:
    """A calibration by no more examples than run at once, from all over: they tell the statistics as well as all do."""
    size = min(len(evidence), BATCH_SIZE)
    few = evidence.take(torch.arange(size) * len(evidence) // size)
    made = make(observation, few)
    return replace(made, passes=made.passes * len(few) / len(evidence))


def _estimates(observation: Observation[Any, Any], scratch: Scratch) -> Iterator[tuple[str, Weights]]:
    """What steps may begin from where nothing is calibrated: the received weights, and an estimate of them.

    BatchNorm undoes a layer's scale, and all that MMSE would shrink is the confidence of the head; there a structured
    prior of the convolutions is worth a look. Without BatchNorm it is MMSE of the model as a whole and, where each
    input is normalised, MMSE of its branches.
    """
    received = observation.weights
    yield "blended", received
    if scratch.follows:
        believed = observation.with_noise(believable_noise(received, observation.known_noise))
        layers = grouped(believed, "layerwise")
        yield "structured", _at_length(layers.estimate(structured_denoisers(believed)), received)
    else:
        whole, layers = grouped(observation), grouped(observation, "layerwise")
        yield "mmse", whole.estimate(whole.denoisers(MMSE))
        if (kept := scratch.tail()) is not None:
            yield "branches", layers.estimate(branch_denoisers(layers, kept))


def prepare(scratch: Scratch, start: Start, by_group: GroupedWeights) -> Whitened:
    """The Gaussian about a start, and BatchNorms that follow the weights from there, with the gains it has.

    The spread is that of weights of the received length, noise included. An estimate is shorter, and where its scale is
    undone, so are its steps.
    """
    if start.is_anchor:
        scratch.anchor(start.network)
    scratch.gains = {
        name: one.detach().clone() for name, one in start.network.named_parameters() if name in scratch.gains
    }
    undone = scratch.scale_free() & start.weights.keys()  # a clean bias is no weight to be moved
    lengths = {name: _length(start.weights[name]) / (_length(by_group.weights[name]) or 1.0) for name in undone}
    whitened = Whitened.of(by_group, start.weights, undone)
    spread = {name: one * (lengths.get(name) or 1.0) for name, one in whitened.spread.items()}
    return Whitened(whitened.centre, spread)


def _at_length(estimate: Weights, received: Weights) -> dict[str, Tensor]:
    """Each tensor stretched to the length of the received one, which is what stored statistics have to do with."""
    return {
        name: tensor * (_length(received[name]) / length) if (length := _length(tensor)) else tensor
        for name, tensor in estimate.items()
    }


def _length(tensor: Tensor) -> float:
    return float(tensor.double().norm())
