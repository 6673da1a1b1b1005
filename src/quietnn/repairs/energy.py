"""The energy that noise adds to what a layer makes, taken out again: the label-free repair that keeps every balance.

Noise of variance `sigma_z^2` adds `N = sigma_z^2 sum(x^2)` to the energy `S` of each output of a layer. Branches of a
residual stream then count more than they were trained to, and attention is sharper. A factor `sqrt(S / (S + N))` on the
layer gives the energy back. What the layer is given is seen, so `N` is known, and `S` is what is measured less `N`.
"""

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import call
from quietnn.errors import InvalidWeights
from quietnn.evidence import Evidence
from quietnn.noise import noise_by_tensor, one_variance
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.branches import centre_if_possible
from quietnn.targets import with_weights
from quietnn.watching.makers import eagerly
from quietnn.watching.survey import CONVOLUTIONS, given
from quietnn.watching.undisturbed import undisturbed
from quietnn.weights import check_weights

_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Embedding, *CONVOLUTIONS)


def energy_factor(energy: float, noise_energy: float, *, width: int) -> float:
    """What a noisy layer is multiplied by, so that its outputs have the energy of the clean layer's.

    With `t = S / (S + N)` the squared error of the outputs goes from `N` to `2 t / (1 + sqrt(t)) N`: never up.
    MMSE's `t` in place of `sqrt(t)` makes it smaller still, and makes the layer count less than it was trained to.

    Args:
        energy: the sum of squares of what the layer makes, `S + N`.
        noise_energy: what noise is expected to add, `N`.
        width: outputs of the layer. A draw of noise differs from `N` by up to `sqrt(2 / width) N` (one standard
            deviation, if all inputs point the same way), so no less signal than that is believed.

    >>> energy_factor(4.0, 3.0, width=1000), energy_factor(4.0, 0.0, width=1000)
    (0.5, 1.0)
    >>> energy_factor(1.0, 1.0, width=200)    # no signal is seen: a tenth of the noise is left
    0.31622776601683794
    """
    if noise_energy <= 0 or energy <= 0:
        return 1.0
    signal = max(energy - noise_energy, math.sqrt(2 / width) * noise_energy)
    return math.sqrt(min(signal / energy, 1.0))


@torch.inference_mode(False)
@torch.no_grad()
def energy_restored(
    observation: Observation[Any, Any], evidence: Evidence, *, balanced_classes: bool = False
) -> Repaired:
    """Multiply each layer by what gives its outputs the energy that they have without noise (docs/auto.md).

    For networks that normalise each input. Linear layers, convolutions and embeddings are multiplied, each by its
    `energy_factor`; a layer of another kind, or whose weights another layer shares, stays as received.

    Args:
        observation: the network as received.
        evidence: inputs, about 100, run in batches. No labels are needed.
        balanced_classes: all classes are about equally common among the inputs; then the last bias is corrected too,
            where there is one.

    Raises:
        QuietnnError: for inputs, weights or outputs that are not finite, or a bad variance.

    >>> network = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8))
    >>> _ = nn.init.ones_(network[0].weight)
    >>> repaired = energy_restored(Observation(network, 0.36), Evidence(torch.ones(10, 4)))   # energy 16, 1.44 of noise
    >>> round(repaired.model[0].weight[0, 0].item() ** 2, 2)
    0.91
    """
    model, weights = observation.model, observation.weights
    check_weights(weights)
    noise = noise_by_tensor(observation.known_noise, weights)
    if noise is None:
        noise = dict.fromkeys(weights, one_variance(observation.known_noise))
    result = with_weights(model, {})
    for layer, factor in _factors(result, evidence, _variances(model, noise)).items():
        for parameter in layer.parameters(recurse=False):
            parameter.mul_(factor)
    if not balanced_classes:
        return Repaired(result, "energy", 1.0)
    centre_if_possible(observation, result, evidence)
    return Repaired(result, "energy_balanced", 2.0)


def _variances(model: nn.Module, noise: dict[str, Any]) -> nn.Module:
    """The network with the variance of its noise in place of each parameter: given squares, it makes noise energy."""
    twin = with_weights(model, {}).float()
    for name, parameter in twin.named_parameters():
        parameter.copy_(torch.as_tensor(noise.get(name, 0.0)).expand_as(parameter))
    return twin.eval()


def _factors(model: nn.Module, evidence: Evidence, variances: nn.Module) -> dict[nn.Module, float]:
    """The factor of each layer, from one pass over the inputs."""
    uses = Counter(id(one) for layer in model.modules() for one in layer._parameters.values())
    twins = {
        layer: twin
        for layer, twin in zip(model.modules(), variances.modules(), strict=True)
        if _is_linear_in_weights(layer) and all(uses[id(one)] == 1 for one in layer.parameters())
    }
    energies: dict[nn.Module, Tensor] = {}

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        received = given(args, kwargs)
        squares = received.float().square() if received.is_floating_point() else received
        noise = twins[layer](squares).sum(dtype=torch.float64)
        pair = torch.stack([output.double().square().sum(), noise])
        energies[layer] = energies.get(layer, torch.zeros_like(pair)) + pair

    handles = [layer.register_forward_hook(after, with_kwargs=True) for layer in twins]
    try:
        with undisturbed(model), eagerly(model):
            for inputs, _ in evidence.batches():
                call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    names = {layer: name for name, layer in model.named_modules()}
    for layer, pair in energies.items():
        if not bool(torch.isfinite(pair).all()):
            raise InvalidWeights(f"what {names[layer]} makes is not finite; the noise has blown up the network")
    return {layer: energy_factor(*pair.tolist(), width=_width(layer)) for layer, pair in energies.items()}


def _is_linear_in_weights(layer: nn.Module) -> bool:
    """Whether outputs are sums of weights times inputs. Conv1D is transformers' name for a transposed linear layer."""
    is_known = type(layer) in _LAYERS or (type(layer).__name__ == "Conv1D" and hasattr(layer, "nf"))
    return is_known and set(layer._parameters) <= {"weight", "bias"} and getattr(layer, "max_norm", None) is None


def _width(layer: nn.Module) -> int:
    """How many outputs a layer has for each input or position."""
    for name in ("out_features", "out_channels", "embedding_dim", "nf"):
        if hasattr(layer, name):
            return int(getattr(layer, name))
    raise AssertionError(f"{type(layer).__name__} has no width")
