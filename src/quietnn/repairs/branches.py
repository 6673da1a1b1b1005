"""The repair of networks that normalise each input, without labels: branches by MMSE, and a head without preference."""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import call, logits_of, num_inputs
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.evidence import Evidence, some_inputs
from quietnn.noise import NoiseVariance, mean_of
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import MMSE
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.repairs.branch_denoisers import behind_last_normalisation, branch_denoisers
from quietnn.repairs.grouped import Reception, grouped
from quietnn.repairs.head import recentre
from quietnn.repairs.kinds import stores_statistics
from quietnn.targets import with_weights
from quietnn.watching.makers import Makers, eagerly, undisturbed
from quietnn.watching.samples import HeadSample
from quietnn.watching.survey import given

_LEAST_SIGNAL = 1e-6
"""The share of signal that is taken to be left however many layers add noise."""


@torch.inference_mode(False)
def denoise_branches(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    balanced_classes: bool = False,
) -> Repaired:
    """MMSE layer by layer up to the last normalisation; the layers behind it as received, their last bias corrected.

    For transformers and others that normalise each input (LayerNorm, RMSNorm, GroupNorm, InstanceNorm) and have no
    stored statistics. Noise moves what such a network makes of all inputs alike, and nothing moves it back: a
    classifier then gives most inputs to one class. If all classes are said to be equally common among the inputs, the
    bias of the last layer takes that out (docs/branches.md).

    Args:
        what: the network as received.
        inputs: what the network is for, in any form of `Evidence`. Two are run to see the order of its layers; where
            classes are balanced all of them are, once: give about 100 then.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        balanced_classes: say that all classes are about equally common among the inputs. Labels are not needed.

    Raises:
        InvalidConfig: if no layer normalises each input, some layer has stored statistics, or classes are said to be
            balanced and the network does not end in a linear layer with a bias.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> repaired = denoise_branches(network, torch.rand(10, 4), noise_variance=0.01).model
    >>> torch.equal(repaired[0].weight, network[0].weight), torch.equal(repaired[2].weight, network[2].weight)
    (False, True)
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "denoise_branches")
    result, layers = _denoised(observation, evidence)
    if not balanced_classes:
        return Repaired(result, "branches")
    if layers.noise_variance > 0:
        if _is_single(evidence):
            raise InvalidConfig("1 input cannot show a preference of classes; give 2 or more, about 100")
        centre_head(result, evidence, layers)
    return Repaired(result, "branches_balanced", 1.0)


def centred_branches(observation: Observation[Any, Any], evidence: Evidence) -> nn.Module | None:
    """`branches` with balanced classes; None where there is no head that can be centred by these inputs."""
    result, layers = _denoised(observation, evidence)
    if _is_single(evidence) or layers.noise_variance == 0:
        return None
    try:
        centre_head(result, evidence, layers)
    except QuietnnError:  # outputs of another kind, or not finite
        return None
    return result


def _is_single(evidence: Evidence) -> bool:
    return num_inputs(evidence.first(2)) < 2


def _denoised(observation: Observation[Any, Any], evidence: Evidence) -> tuple[nn.Module, Reception]:
    """A copy of the network with its branches by MMSE, and the received weights by layer."""
    model, inputs = observation.model, evidence.first(2)
    result = with_weights(model, {})
    with undisturbed(result):
        kept = behind_last_normalisation(result, lambda: call(result, inputs), normalisation=observation.normalisation)
    if kept is None or stores_statistics(model):
        raise InvalidConfig(
            "branches is for networks that normalise each input (LayerNorm and the like) and have no stored "
            "statistics, and this is none; use calibrate where there is BatchNorm, denoise elsewhere, or name a "
            "normalisation of your own: normalisation=(Mine,)"
        )
    layers = grouped(observation, "layerwise")
    if layers.noise_variance > 0:
        with_weights(result, layers.estimate(branch_denoisers(layers, kept)), in_place=True)
    return result, layers


def branches_if_any(
    observation: Observation[Any, Any], evidence: Evidence, *, balanced_classes: bool
) -> Repaired | None:
    """`branches`, with a centred head where there is one to centre; None for networks of another kind."""
    for centred in dict.fromkeys((balanced_classes, False)):
        try:
            return denoise_branches(observation, evidence, balanced_classes=centred)
        except InvalidConfig:
            continue
    return None


def centre_if_possible(observation: Observation[Any, Any], network: nn.Module, evidence: Evidence) -> None:
    """Correct the last bias of a repaired network for classes that are equally common, where it has one to correct."""
    layers = grouped(observation, "layerwise")
    if _is_single(evidence) or layers.noise_variance == 0:
        return
    with suppress(QuietnnError):  # outputs of another kind, or not finite
        centre_head(network, evidence, layers)


@torch.no_grad()
def centre_head(model: nn.Module, evidence: Evidence, layers: Reception) -> None:
    """One pass over all inputs; then the last bias takes out what noise made of the classes' mean outputs."""
    head = HeadSample.merged(_heads(model, evidence))
    names = {id(one): name for name, one in model.named_parameters(remove_duplicate=False)}
    weight, bias = (_noise(layers, names, getattr(head.layer, part, None)) for part in ("weight", "bias"))
    recentre(head, weight=weight, bias=bias, upstream=_noise_to_signal(layers))


def _heads(model: nn.Module, evidence: Evidence) -> Iterator[HeadSample]:
    """What comes out of the network, batch by batch."""
    makers: Makers[tuple[nn.Module, Tensor]] = Makers()

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        makers.remember(output, (layer, given(args, kwargs)))

    linear = [layer for layer in model.modules() if type(layer) is nn.Linear]
    handles = [layer.register_forward_hook(after, with_kwargs=True) for layer in linear]
    try:
        with undisturbed(model), eagerly(model):
            for inputs, _ in evidence.batches():
                outputs = logits_of(call(model, inputs))
                if not bool(torch.isfinite(outputs).all()):
                    raise InvalidWeights(
                        "the outputs are not finite; the noise has blown up the network, repair its weights first"
                    )
                layer, received = makers.of(outputs) or (None, None)
                yield HeadSample(outputs, layer=layer, inputs=received)
    finally:
        for handle in handles:
            handle.remove()


def _noise(layers: Reception, names: dict[int, str], parameter: Tensor | None) -> ParameterNoise:
    """The noise on a parameter as it came."""
    name = names.get(id(parameter), "")
    if name not in layers.weights:
        return ParameterNoise()
    return ParameterNoise(variance=layers.noise_variance if layers.noise is None else mean_of(layers.noise[name]))


def _noise_to_signal(layers: Reception) -> float:
    """Noise over signal in what all layers together make.

    Of what a layer makes, a share `theta` is signal, MMSE's; of what they make one after the other the product is. A
    layer below the model's own share (a gate that is closed, an adapter at zero) adds little and counts as that share.
    """
    noise: NoiseVariance = layers.noise_variance if layers.noise is None else layers.noise
    least = Reception.of(layers.weights, noise).denoisers(MMSE)["whole"].theta
    left = math.prod(max(one.theta, least, 0.0) for one in layers.denoisers(MMSE).values())
    return (1 - left) / max(left, _LEAST_SIGNAL)
