"""The repair of networks that normalise each input, without labels: branches by MMSE, and a head without preference."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call, check_finite, check_inputs, logits_of, take
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.noise import NoiseVariance, mean_of
from quietnn.repairs.affine import MMSE
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.repairs.branch_denoisers import behind_last_normalisation, branch_denoisers
from quietnn.repairs.grouped import Reception
from quietnn.repairs.head import recentre
from quietnn.targets import noisy_weights, with_weights
from quietnn.watching.makers import Makers, eagerly
from quietnn.watching.undisturbed import undisturbed
from quietnn.watching.visits import Feeder, given
from quietnn.weights import NORMALISATION_TYPES, check_module

_LEAST_SIGNAL = 1e-6
"""The share of signal that is taken to be left however many layers add noise."""


@torch.inference_mode(False)
def denoise_branches(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    balanced_classes: bool = False,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> nn.Module:
    """MMSE layer by layer up to the last normalisation; the layers behind it as they came, their last bias corrected.

    For transformers and others that normalise each input (LayerNorm, RMSNorm, GroupNorm, InstanceNorm) and have no
    stored statistics. Noise moves what such a network makes of all inputs alike, and nothing moves it back: a
    classifier then gives most inputs to one class. If all classes are said to be equally common among the inputs, the
    bias of the last layer takes that out (docs/branches.md).

    Args:
        model: the network as received; it stays as it is.
        inputs: what the network is for. Two are run to see the order of its layers; where classes are balanced all of
            them are, once: give about 100 then.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        balanced_classes: say that all classes are about equally common among the inputs. Their labels are not needed.
        normalisation: module types whose parameters carry no noise.

    Raises:
        InvalidConfig: if no layer normalises each input, some layer has stored statistics, or classes are said to be
            balanced and the network does not end in a linear layer with a bias.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> repaired = denoise_branches(network, torch.rand(10, 4), noise_variance=0.01)
    >>> torch.equal(repaired[0].weight, network[0].weight), torch.equal(repaired[2].weight, network[2].weight)
    (False, True)
    """
    result, layers = _denoised(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
    if balanced_classes and layers.noise_variance > 0:
        if check_inputs(inputs) < 2:
            raise InvalidConfig("1 input cannot show a preference of classes; give 2 or more, about 100")
        _recentre(result, inputs, layers)
    return result


def centred_branches(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> nn.Module | None:
    """`denoise_branches` with balanced classes; None where there is no head that can be centred by these inputs."""
    result, layers = _denoised(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
    if check_inputs(inputs) < 2 or layers.noise_variance == 0:
        return None
    try:
        _recentre(result, inputs, layers)
    except QuietnnError:  # outputs of another kind, or not finite
        return None
    return result


def _denoised(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    normalisation: tuple[type[nn.Module], ...],
) -> tuple[nn.Module, Reception]:
    """A copy of the network with its branches by MMSE, and the weights as they came."""
    check_module(model, normalisation=normalisation)
    check_inputs(inputs)
    check_finite(inputs)
    result = with_weights(model, {})
    with undisturbed(result):
        kept = behind_last_normalisation(
            result, lambda: call(result, take(inputs, slice(2))), normalisation=normalisation
        )
    if kept is None or any(getattr(layer, "running_mean", None) is not None for layer in model.modules()):
        raise InvalidConfig(
            "denoise_branches is for networks that normalise each input (LayerNorm and the like) and have no stored "
            "statistics, and this is none; use calibrate where there is BatchNorm, denoise elsewhere, or name a "
            "normalisation of your own: normalisation=(*NORMALISATION_TYPES, Mine)"
        )
    layers = Reception.of(noisy_weights(model, normalisation=normalisation), noise_variance, groups="layerwise")
    if layers.noise_variance > 0:
        with_weights(result, layers.estimate(branch_denoisers(layers, kept)), in_place=True)
    return result, layers


def branches_if_any(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    balanced_classes: bool,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> nn.Module | None:
    """`denoise_branches`, with a centred head where there is one to centre; None for networks of another kind."""
    for centred in dict.fromkeys((balanced_classes, False)):
        try:
            return denoise_branches(
                model,
                inputs,
                noise_variance=noise_variance,
                balanced_classes=centred,
                normalisation=normalisation,
            )
        except InvalidConfig:
            continue
    return None


@torch.no_grad()
def _recentre(model: nn.Module, inputs: Inputs, layers: Reception) -> None:
    """One pass over all inputs; then the last bias takes out what noise made of the classes' mean outputs."""
    makers: Makers[Feeder] = Makers()

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        makers.remember(output, Feeder("", layer, given(args, kwargs), 0))

    linear = [layer for layer in model.modules() if type(layer) is nn.Linear]
    handles = [layer.register_forward_hook(after, with_kwargs=True) for layer in linear]
    try:
        with undisturbed(model), eagerly(model):
            outputs = logits_of(call(model, inputs))
            head = makers.of(outputs)
    finally:
        for handle in handles:
            handle.remove()
    if not bool(torch.isfinite(outputs).all()):
        raise InvalidWeights("the outputs are not finite; the noise has blown up the network, repair its weights first")
    names = {id(one): name for name, one in model.named_parameters(remove_duplicate=False)}
    weight, bias = (_noise(layers, names, getattr(head and head.layer, part, None)) for part in ("weight", "bias"))
    recentre(head, outputs, weight=weight, bias=bias, upstream=_noise_to_signal(layers))


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
