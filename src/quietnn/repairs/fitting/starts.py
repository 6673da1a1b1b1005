"""Where a fit may start: networks that need no labels, and that the fit is judged beside."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.affine import MMSE, Temperatures
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured
from quietnn.repairs.branches import branch_denoisers, denoise_branches
from quietnn.repairs.directions import denoise_directions
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.whitened import Whitened
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures, grouped
from quietnn.repairs.head import centre_head
from quietnn.repairs.kernels import believable_noise, structured_denoisers
from quietnn.repairs.kinds import has_kernels, has_stored_statistics, normalises_inputs
from quietnn.targets import noisy_weights
from quietnn.weights import Weights

_NAMES_TAKEN = ("received", "posterior", "blended")
_TAKEN_WITHOUT_STATISTICS = ("mmse", "branches")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Start:
    """A network that steps may begin from."""

    network: nn.Module  # as it would be returned
    weights: Weights  # its noisy weights, where the steps begin; its own tensors, not copies of them
    is_scale_free: bool = False  # whether layers in front of a BatchNorm may have any scale there
    is_anchor: bool = False  # whether its BatchNorm statistics were fitted to its weights, to be carried along


def repaired_starts(observation: Observation[Any, Any], evidence: Evidence) -> tuple[dict[str, nn.Module], float]:
    """What can be made of a network without labels, and what that costs in passes.

    With BatchNorm the network calibrated, and with its convolutions under the structured prior as well; where each
    input is normalised MMSE by input direction, and that of the branches with a head that prefers no class (labels will
    judge it). Else nothing.
    """
    model = observation.model
    made: list[Repaired] = []
    if not evidence.has_inputs:
        return {}, 0.0
    if has_stored_statistics(model):
        made.append(calibrate(observation, evidence))
    if has_kernels(model):
        made.append(calibrate_structured(observation, evidence))
    if normalises_inputs(model, observation.normalisation):
        made.append(denoise_directions(observation, evidence))
        branches = denoise_branches(observation, evidence).model
        with suppress(QuietnnError):  # no head that these inputs can centre
            centre_head(observation, branches, evidence)
            made.append(Repaired(branches, "centred", 1.0))
    return {one.name: one.model for one in made}, sum(one.passes for one in made)


def given_starts(
    networks: Mapping[str, nn.Module], model: nn.Module, received: Weights, *, anchors: bool = True
) -> dict[str, Start]:
    """Networks of the caller's; those with BatchNorm (`anchors`) have statistics that were fitted to their weights.

    Nothing else may differ from the network as it came: steps are taken on that one.
    """
    for name in _NAMES_TAKEN if anchors else (*_NAMES_TAKEN, *_TAKEN_WITHOUT_STATISTICS):
        if name in networks:
            raise InvalidConfig(f"a start is called {name!r}, which stands for something else here; call it otherwise")
    starts = {
        name: replace(_start(network, received, is_scale_free=anchors), is_anchor=anchors)
        for name, network in networks.items()
    }
    for name, network in networks.items():
        if (other := _differs(network, model, received, statistics=anchors)) is not None:
            raise InvalidConfig(
                f"the start {name!r} differs from the network as it came in {other!r}, which carries no noise; "
                "starts may differ in noisy weights" + (" and BatchNorm statistics" if anchors else "")
            )
    return starts


def _differs(start: nn.Module, model: nn.Module, received: Weights, *, statistics: bool) -> str | None:
    """The name of something without noise, BatchNorm statistics aside, in which a start is not the model."""
    own, other = (
        {**dict(one.named_parameters(remove_duplicate=False)), **dict(one.named_buffers(remove_duplicate=False))}
        for one in (model, start)
    )
    noisy = {id(own.get(name)) for name in received}  # a tied tensor has several names
    for name, tensor in own.items():
        if id(tensor) in noisy or (statistics and name.rpartition(".")[2] in _STATISTICS):
            continue
        if name in other and not torch.equal(tensor, other[name]):
            return name
    return None


def blended_start(model: nn.Module, received: Weights, scratch: Scratch) -> dict[str, Start]:
    """The weights as they came, with BatchNorm statistics between those stored and those of the examples."""
    return {"blended": _start(scratch.finish(model, received), received, is_scale_free=True)}


def _start(network: nn.Module, weights: Weights, *, is_scale_free: bool = False) -> Start:
    return Start(network, noisy_weights(network, noisy=tuple(weights)), is_scale_free)


def own_starts(
    observation: Observation[Any, Any],
    by_group: GroupedWeights,
    centre: Temperatures | GroupTemperatures | None,
    scratch: Scratch,
) -> dict[str, Start]:
    """What steps may begin from if nobody gives anything: the weights as they came, and an estimate of them.

    BatchNorm undoes a layer's scale, and all that MMSE would shrink is the confidence of the head; there a structured
    prior of the convolutions is worth a look. Without BatchNorm it is MMSE of the model as a whole and, where each
    input is normalised, MMSE of its branches.
    """
    model, received = observation.model, by_group.weights
    starts = blended_start(model, received, scratch)
    if centre is not None:
        estimate = by_group.estimate(by_group.denoisers(centre))
        return {**starts, "centre": _start(scratch.finish(model, estimate), estimate)}
    if scratch.follows:
        believed = observation.with_noise(believable_noise(received, observation.known_noise))
        maps = structured_denoisers(believed)
        estimate = _at_length(grouped(believed, "layerwise").estimate(maps), received)
        return {**starts, "structured": _start(scratch.finish(model, estimate), estimate, is_scale_free=True)}
    whole = grouped(observation)
    estimate = whole.estimate(whole.denoisers(MMSE))
    starts["mmse"] = _start(scratch.finish(model, estimate), estimate)
    if (kept := scratch.tail()) is not None:
        layers = grouped(observation, "layerwise")
        estimate = layers.estimate(branch_denoisers(layers, kept))
        starts["branches"] = _start(scratch.finish(model, estimate), estimate)
    return starts


def prepare(scratch: Scratch, start: Start, by_group: GroupedWeights) -> Whitened:
    """The Gaussian about a start, and BatchNorms that follow the weights from there.

    The spread is that of weights of the received length, noise included. An estimate is shorter, and where its scale is
    undone, so are its steps.
    """
    if start.is_anchor:
        scratch.anchor(start.network)
    undone = scratch.scale_free() if start.is_scale_free else frozenset()
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
