"""The digital part of a repair, put back beside the arrays of an aihwkit network."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.analog.readout import read_out
from quietnn.analog.tiles import analog_layers, bias_of, tiles_of
from quietnn.errors import InvalidConfig, check_is
from quietnn.observation import Observation
from quietnn.repairs.base import Repaired
from quietnn.repairs.beside.beside import Beside
from quietnn.repairs.beside.project import projected
from quietnn.repairs.beside.where import Where
from quietnn.targets import check_fits, some_of

_ROUNDING = 1e-6
"""The share of a squared change that rounding explains."""


@dataclass(frozen=True)
class LowRank:
    """A forward hook that adds `B A x` to what a layer makes: a digital layer of low rank beside its arrays."""

    left: Tensor
    right: Tensor

    def __call__(self, layer: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        inputs: Tensor = args[0]
        if isinstance(layer, nn.Linear):
            return output + nn.functional.linear(nn.functional.linear(inputs, self.right), self.left)
        settings = {name: getattr(layer, name) for name in ("stride", "padding", "dilation")}
        run: Any = {1: nn.functional.conv1d, 2: nn.functional.conv2d, 3: nn.functional.conv3d}[len(layer.kernel_size)]
        inner = run(inputs, self.right.view(-1, layer.in_channels, *layer.kernel_size), **settings)
        added: Tensor = run(inner, self.left.view(*self.left.shape, *[1] * len(layer.kernel_size)))
        return output + added


@torch.inference_mode(False)
@torch.no_grad()
def write_back(
    network: nn.Module, repaired: Repaired, *, observation: Observation[Any, Any] | None = None
) -> nn.Module:
    """A copy of an aihwkit network with the digital part of a repair; its arrays are those of the network, bit for bit.

    Running statistics, gains and biases are copied. A factor of an output goes into aihwkit's own output scales. A
    low-rank addition is added behind the layer by a hook.

    Args:
        network: that was read out.
        repaired: what a repair made of it that left the weights: `repair(..., trainable="digital" | "adapter")`, or
            calibration.
        observation: what `read_out` returned, where it was called with readouts.

    Raises:
        InvalidConfig: if the repair is of another network, or has changed the weights themselves.
    """
    check_is(repaired, Repaired, "repaired", "give what a repair returned: write_back(network, repair(network, ...))")
    layers = analog_layers(network)
    observation = read_out(network) if observation is None else observation
    received, state = observation.weights, repaired.model.state_dict()
    if any(name not in state for name in received):
        raise InvalidConfig(f"the repair is of another network: it has no {some_of([*received])}")
    check_fits(received, {name: state[name] for name in received})
    beside = left_beside(repaired, observation)
    result = copy.deepcopy(network)
    for name, layer in analog_layers(result).items():
        key, bias_key = (f"{name}.weight", f"{name}.bias") if name else ("weight", "bias")
        if key in beside.low_rank:
            layer.register_forward_hook(LowRank(*(part.clone() for part in beside.low_rank[key])))
        if key in beside.scales:
            factors = beside.scales[key].flatten().expand(len(received[key]))
            for tile in tiles_of(layer):
                tile.multiply(factors[tile.rows])
        bias = bias_of(layer)
        if bias is not None and bias_key in beside.replaced:
            bias.copy_(beside.replaced[bias_key])
    inside = tuple(f"{name}." if name else "" for name in layers)
    changed = {**beside.replaced, **beside.statistics}
    for name, tensor in [*result.named_parameters(), *result.named_buffers()]:
        if name in changed and not name.startswith(inside):
            tensor.copy_(changed[name])
    return result


def left_beside(repaired: Repaired, observation: Observation[Any, Any]) -> Beside:
    """What stands beside the weights of a repair.

    Raises:
        InvalidConfig: if it has rewritten the weights themselves.
    """
    if "beside" in repaired.details:
        return repaired.beside
    _, beside, kept = projected(observation.at_unit_gain(), repaired.model, Where("digital"))
    if kept < 1 - _ROUNDING:
        raise InvalidConfig(
            f"{repaired.name} has rewritten the weights, which stay in the array; repair what is digital: "
            "repair(network, inputs, labels, trainable='digital')"
        )
    return beside
