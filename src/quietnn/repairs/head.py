"""A last layer that noise makes prefer some classes, put right where classes are known to be equally common."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import logits_of, num_inputs
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.evidence import Evidence
from quietnn.noise import NoiseVariance, mean_of
from quietnn.observation import Observation
from quietnn.repairs.affine import MMSE
from quietnn.repairs.batchnorm.parameter_noise import ParameterNoise
from quietnn.repairs.grouped import GroupedWeights, grouped
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.samples import HeadSample
from quietnn.watching.survey import Run

_LEAST_SIGNAL = 1e-6
"""The share of signal that is taken to be left however many layers add noise."""


@torch.no_grad()
def recentre(sample: HeadSample, *, weight: ParameterNoise, bias: ParameterNoise, upstream: float) -> float:
    """Shrink the differences between the classes' mean outputs by `k = P / (P + s + T)`, through the layer's bias.

    Noise moves the mean output of a class by a shift of variance `P = sigma^2 sum_k E[x_k]^2 + sigma_b^2 + u V`: its
    own weights' part and bias, and at most a share `u` of the outputs' variance `V` from upstream. Of the differences
    that are seen, `s` is sampling error and `T`, what is left, the clean network's own. Without noise nothing changes.
    """
    layer = sample.layer
    if len(sample.shape) != 2:
        raise InvalidConfig(
            f"the network's outputs have shape {sample.shape}; balanced_classes needs (examples, classes), leave it out"
        )
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        raise InvalidConfig(
            "balanced_classes corrects the bias of a last linear layer, and this network does not end in one; "
            "leave balanced_classes out"
        )
    means, variances = sample.outputs.mean, sample.outputs.variance
    differences = means - means.mean()
    own = mean_of(weight.variance) * sample.patches.squared_means[0] + mean_of(bias.variance)
    shift = float(own + upstream * variances.mean())
    if shift == 0 or len(means) < 2:
        return 0.0
    error = float(variances.mean()) / sample.outputs.count
    seen = float(differences.square().sum()) / (len(means) - 1)
    taken = shift / max(shift + error, seen)
    layer.bias.sub_((taken * differences).to(layer.bias))
    return taken


@torch.no_grad()
def centre_head(observation: Observation[Any, Any], network: nn.Module, evidence: Evidence) -> str | None:
    """One pass over all inputs; then the last bias of a repaired network takes out what noise made of mean outputs.

    Returns the name of that bias, if there is noise. Where there is none to correct, or outputs are of another kind, a
    QuietnnError says so, and the network is as it was.
    """
    layers = grouped(observation, "layerwise")
    if layers.noise_variance == 0:
        return None
    if num_inputs(evidence.first(2)) < 2:
        raise InvalidConfig("1 input cannot show a preference of classes; give 2 or more, about 100")
    head = HeadSample.merged(_heads(network, evidence))
    names = {id(one): name for name, one in network.named_parameters(remove_duplicate=False)}
    weight, bias = (_noise(layers, names, getattr(head.layer, part, None)) for part in ("weight", "bias"))
    recentre(head, weight=weight, bias=bias, upstream=_noise_to_signal(layers))
    return names.get(id(getattr(head.layer, "bias", None)))


def _heads(model: nn.Module, evidence: Evidence) -> Iterator[HeadSample]:
    """What comes out of the network, batch by batch."""
    with undisturbed(model), eagerly(model):
        for inputs, _ in evidence.batches():
            run = Run()
            outputs = logits_of(run.through(model, inputs))
            if not bool(torch.isfinite(outputs).all()):
                raise InvalidWeights(
                    "the outputs are not finite; the noise has blown up the network, repair its weights first"
                )
            yield HeadSample(run, outputs)


def _noise(layers: GroupedWeights, names: dict[int, str], parameter: Tensor | None) -> ParameterNoise:
    """The noise on a received parameter."""
    name = names.get(id(parameter), "")
    if name not in layers.weights:
        return ParameterNoise()
    return ParameterNoise(variance=layers.noise_variance if layers.noise is None else mean_of(layers.noise[name]))


def _noise_to_signal(layers: GroupedWeights) -> float:
    """Noise over signal in what all layers together make.

    Of what a layer makes, a share `theta` is signal, MMSE's; of what they make one after the other the product is. A
    layer below the model's own share (a gate that is closed, an adapter at zero) adds little and counts as that share.
    """
    noise: NoiseVariance = layers.noise_variance if layers.noise is None else layers.noise
    least = GroupedWeights.of(layers.weights, noise).denoisers(MMSE)["whole"].theta
    left = math.prod(max(one.theta, least, 0.0) for one in layers.denoisers(MMSE).values())
    return (1 - left) / max(left, _LEAST_SIGNAL)
