"""Where a fit may start: networks that need no labels, and that the fit is judged beside."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from quietnn.denoisers.affine import MMSE, Temperatures
from quietnn.denoisers.evidence import Scratch
from quietnn.denoisers.reception import GroupTemperatures, Reception
from quietnn.denoisers.structured import structured_denoisers
from quietnn.denoisers.whitened import Whitened
from quietnn.targets import noisy_weights
from quietnn.weights import NORMALISATION_TYPES, Weights


@dataclass(frozen=True)
class Start:
    """A network that steps may begin from.

    Attributes:
        network: as it would be returned.
        weights: its noisy weights, where the steps begin.
        is_scale_free: whether layers in front of a BatchNorm may have any scale there.
        is_anchor: whether its BatchNorm statistics were fitted to its weights, to be carried along with them.
    """

    network: nn.Module
    weights: Weights
    is_scale_free: bool = False
    is_anchor: bool = False


def given_starts(networks: Mapping[str, nn.Module], received: Weights, scratch: Scratch) -> dict[str, Start]:
    """Networks whose statistics the caller has fitted; where a scale is undone, steps begin at the received length."""
    undone = scratch.scale_free()
    found = {}
    for name, network in networks.items():
        weights = noisy_weights(network, noisy=tuple(received))
        found[name] = Start(network, {**weights, **_at_length(weights, received, undone)}, True, True)
    return found


def own_starts(
    model: nn.Module,
    reception: Reception,
    centre: Temperatures | GroupTemperatures | None,
    scratch: Scratch,
    *,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> dict[str, Start]:
    """What steps may begin from if nobody gives anything: the weights as they came, and an estimate of them.

    BatchNorm undoes a layer's scale, and all that MMSE would shrink is the confidence of the head; there a structured
    prior of the convolutions is worth a look. Without BatchNorm it is MMSE of the model as a whole.
    """
    received = reception.weights
    starts = {"blended": Start(scratch.finish(model, received), received, is_scale_free=True)}
    noise = reception.noise_variance if reception.noise is None else reception.noise
    if centre is not None:
        estimate = reception.estimate(reception.denoisers(centre))
        return {**starts, "centre": Start(scratch.finish(model, estimate), estimate)}
    if scratch.follows:
        layers = Reception.of(received, noise, groups="layerwise")
        maps = structured_denoisers(model, noise_variance=noise, normalisation=normalisation)
        estimate = _at_length(layers.estimate(maps), received, received)
        return {**starts, "structured": Start(scratch.finish(model, estimate), estimate, is_scale_free=True)}
    whole = Reception.of(received, noise)
    estimate = whole.estimate(whole.denoisers(MMSE))
    return {**starts, "mmse": Start(scratch.finish(model, estimate), estimate)}


def prepare(scratch: Scratch, start: Start, reception: Reception) -> Whitened:
    """The Gaussian about a start, and BatchNorms that follow the weights from there."""
    if start.is_anchor:
        scratch.anchor(start.network)
    return Whitened.of(reception, start.weights, scratch.scale_free() if start.is_scale_free else ())


def _at_length(estimate: Weights, received: Weights, names: Collection[str]) -> dict[str, Tensor]:
    """Some tensors stretched to the length of the received one: for the BatchNorm behind it the same, not for steps.

    Their size follows the noise, which is part of the received length; on shorter weights they would be too long.
    """
    some = {name: tensor for name, tensor in estimate.items() if name in names}
    return {
        name: tensor * (received[name].norm() / tensor.norm()) if tensor.any() else tensor
        for name, tensor in some.items()
    }
