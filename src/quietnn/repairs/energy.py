"""The energy that noise adds to what a layer gives to a normalised sum, taken out again: label-free, without harm.

Noise of variance `sigma_z^2` adds `N = sigma_z^2 sum(x^2)` to the energy `S` of each output of a layer; a factor
`sqrt(S / (S + N))` gives the energy back. What the layer is given is seen, so `N` is known. Only layers that reach the
next normalisation linearly have it: in front of a softmax, an activation or a gate a factor moves the point of work,
and what is received is right on average (docs/how-it-works/auto.md).
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from quietnn.batches import Inputs, call
from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.evidence import Evidence
from quietnn.noise import TensorNoise, noise_of_each
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.head import centre_head
from quietnn.repairs.kinds import is_transposed_linear, normalises_each_input
from quietnn.targets import with_weights
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.survey import CONVOLUTIONS, given
from quietnn.weights import check_weights

_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Embedding, *CONVOLUTIONS)

_TOLERANCE = 1e-3
"""How far from a line rounding may be; an activation is a tenth and more away from it."""


def energy_factor(energy: float, noise_energy: float, *, width: int) -> float:
    """`sqrt(S / (S + N))`: what a noisy layer is multiplied by, so that its outputs have the clean layer's energy.

    A draw of noise differs from `N` by up to `sqrt(2 / width) N` (one standard deviation, if all inputs point the same
    way), so no less signal than that is believed.

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
def restore_energy(
    observation: Observation[Any, Any], evidence: Evidence, *, balanced_classes: bool = False
) -> Repaired:
    """Multiply each layer by what gives its outputs the energy of the clean ones (docs/how-it-works/auto.md).

    For networks that normalise each input. Linear layers, convolutions, embeddings, and the values and last layer of
    torch's attention are multiplied, each by its `energy_factor`, if they reach the next normalisation linearly, which
    two inputs are run three times for. All others stay as received: those in front of a softmax or an activation, a
    head, weights that layers share. If classes are said to be balanced, the last bias is corrected too.

    >>> network = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8))
    >>> _ = nn.init.ones_(network[0].weight)
    >>> repaired = restore_energy(Observation(network, 0.36), Evidence(torch.ones(10, 4)))    # energy 16, 1.44 of noise
    >>> round(repaired.model[0].weight[0, 0].item() ** 2, 2)
    0.91
    """
    model, weights = observation.model, observation.weights
    check_weights(weights)
    noise = noise_of_each(observation.known_noise, weights)
    result = with_weights(model, {})
    with undisturbed(result), eagerly(result):
        layers = _linear_ones(result, evidence.first(2), observation.normalisation)
        for part, factor in _factors(result, evidence, _variances(model, noise), layers).items():
            for parameter in part.parameters:
                parameter.mul_(factor)
    if not balanced_classes:
        return Repaired(result, "energy", 1.0)
    with suppress(QuietnnError):  # no bias to correct, outputs of another kind, or not finite
        centre_head(observation, result, evidence)
    return Repaired(result, "energy_balanced", 2.0)


@dataclass(frozen=True, eq=False)
class _Part:
    """A layer, or one of the four in an attention: its parameters, or views of them, and how many outputs it has."""

    name: str
    parameters: tuple[Tensor, ...]
    width: int


_Measured = Iterator[tuple[_Part, Tensor, Tensor]]
"""Parts with what they made of some inputs, and the variance of its noise."""

_Measure = Callable[[tuple[Any, ...], dict[str, Any], Any], _Measured]
"""From what a layer was called with, and what it made."""


def _variances(model: nn.Module, noise: Mapping[str, TensorNoise]) -> nn.Module:
    """The network with the variance of its noise in place of each parameter: given squares, it makes noise energy."""
    twin = with_weights(model, {}).float()
    for name, parameter in twin.named_parameters():
        parameter.copy_(torch.as_tensor(noise.get(name, 0.0)).expand_as(parameter))
    return twin.eval()


def _linear_ones(model: nn.Module, inputs: Inputs, normalisation: tuple[type[nn.Module], ...]) -> dict[str, nn.Module]:
    """The layers, by name, whose output reaches the next normalisation of an input linearly.

    Seen by multiplying the output by -1, 0 and 2: what enters that normalisation then lies on a line.
    """
    uses = Counter(id(one) for layer in model.modules() for one in layer._parameters.values())
    norms = [layer for layer in model.modules() if normalises_each_input(layer, normalisation)]
    return {
        name: layer
        for name, layer in model.named_modules()
        if _is_sum_of_weights(layer)
        and all(uses[id(one)] == 1 for one in layer.parameters())
        and _is_on_a_line([_behind(model, inputs, layer, norms, factor) for factor in (-1.0, 0.0, 2.0)])
    }


def _behind(model: nn.Module, inputs: Inputs, layer: nn.Module, norms: list[nn.Module], factor: float) -> Tensor | None:
    """What enters the next normalisation if a layer's output is multiplied by a factor; None if there is none."""
    is_made, entered = False, None

    def scale(_: nn.Module, __: object, output: Any) -> Any:
        nonlocal is_made
        is_made = True
        return (factor * output[0], *output[1:]) if isinstance(output, tuple) else factor * output

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal entered
        if is_made and entered is None:
            entered = given(args, kwargs).double()

    with ExitStack() as hooks:
        hooks.enter_context(layer.register_forward_hook(scale))
        for norm in norms:
            hooks.enter_context(norm.register_forward_pre_hook(keep, with_kwargs=True))
        call(model, inputs)
    return entered


def _is_on_a_line(entered: list[Tensor | None]) -> bool:
    negative, none, double = entered
    if negative is None or none is None or double is None or none.shape != double.shape:
        return False
    if not bool(torch.isfinite(double).all()):
        raise InvalidWeights("what enters a normalisation is not finite; the noise has blown up the network before it")
    return float((2 * negative + double - 3 * none).norm()) <= _TOLERANCE * float((double - negative).norm())


def _factors(
    model: nn.Module, evidence: Evidence, variances: nn.Module, layers: Mapping[str, nn.Module]
) -> dict[_Part, float]:
    """The factor of each part of some layers, from one pass over the inputs."""
    energies: dict[_Part, Tensor] = {}

    def watch(measure: _Measure) -> Callable[..., None]:
        def after(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            for part, made, noise in measure(args, kwargs, output):
                pair = torch.stack([made.double().square().sum(), noise.sum(dtype=torch.float64)])
                energies[part] = energies.get(part, torch.zeros_like(pair)) + pair

        return after

    with ExitStack() as hooks:
        for name, layer in layers.items():
            measure = _measure(name, layer, variances.get_submodule(name))
            hooks.enter_context(layer.register_forward_hook(watch(measure), with_kwargs=True))
        for inputs, _ in evidence.batches():
            call(model, inputs)
    for part, pair in energies.items():
        if not bool(torch.isfinite(pair).all()):
            raise InvalidWeights(f"what {part.name} makes is not finite; the noise has blown up the network")
    return {part: energy_factor(*pair.tolist(), width=part.width) for part, pair in energies.items()}


def _measure(name: str, layer: nn.Module, twin: nn.Module) -> _Measure:
    if isinstance(layer, nn.MultiheadAttention) and isinstance(twin, nn.MultiheadAttention):
        return _attention(name, layer, twin)
    widths = (getattr(layer, one, 0) for one in ("out_features", "out_channels", "embedding_dim", "nf"))
    part = _Part(name, tuple(layer.parameters()), max(widths))

    def measure(args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> _Measured:
        received = given(args, kwargs)
        squares = received.float().square() if received.is_floating_point() else received
        yield part, output, twin(squares)

    return measure


def _attention(name: str, layer: nn.MultiheadAttention, twin: nn.MultiheadAttention) -> _Measure:
    """Torch's attention calls none of its layers: its values, and what its last layer is given, are made once more."""
    before_last = copy.deepcopy(layer)
    before_last._forward_hooks.clear()
    before_last.out_proj.weight.copy_(torch.eye(layer.embed_dim))
    if layer.out_proj.bias is not None:
        before_last.out_proj.bias.zero_()
    values = _Part(f"{name}.value", _value_rows(layer), layer.embed_dim)
    last = _Part(f"{name}.out_proj", tuple(layer.out_proj.parameters()), layer.embed_dim)

    def measure(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> _Measured:
        received = args[2] if len(args) > 2 else kwargs["value"]
        yield values, linear(received, *values.parameters), linear(received.float().square(), *_value_rows(twin))
        inner = before_last(*args, **kwargs)[0]
        yield last, output[0], twin.out_proj(inner.float().square())

    return measure


def _value_rows(layer: nn.MultiheadAttention) -> tuple[Tensor, ...]:
    return tuple(one.chunk(3)[2] for one in (layer.in_proj_weight, layer.in_proj_bias) if one is not None)


def _is_sum_of_weights(layer: nn.Module) -> bool:
    """Whether outputs are sums of weights times inputs."""
    if type(layer) is nn.MultiheadAttention:
        return layer.in_proj_weight is not None and layer.bias_k is None
    is_known = type(layer) in _LAYERS or is_transposed_linear(layer)
    return is_known and set(layer._parameters) <= {"weight", "bias"} and getattr(layer, "max_norm", None) is None
