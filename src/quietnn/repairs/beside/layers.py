"""Layers that are called as they are, with something computed beside them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from quietnn.repairs.beside.part import Part
from quietnn.repairs.kinds import is_transposed_linear
from quietnn.weights import Weights, is_normalisation

_CONVOLUTIONS = {nn.Conv1d: functional.conv1d, nn.Conv2d: functional.conv2d, nn.Conv3d: functional.conv3d}


class BesideLayer(nn.Module):
    """`scale * layer(x) + B A x + shift`, where the layer may be a black box, such as a crossbar.

    `weight` and `bias` are what it amounts to, for networks that read them and do not call the layer.

    >>> layer = BesideLayer(nn.Linear(2, 1, bias=False), Part(torch.tensor([[3.0]])), None)
    >>> torch.allclose(layer(torch.eye(2)), 3 * layer.layer(torch.eye(2)))
    True
    """

    layer: Any
    scale: Tensor | None
    up: Any
    down: Any
    shift: Tensor | None

    def __init__(self, layer: nn.Module, part: Part, bias: Tensor | None) -> None:
        """Take the layer as it is, what stands beside its weight, and the bias that it should have had."""
        super().__init__()
        self.layer = layer
        like, own = self.layer.weight.detach(), getattr(layer, "bias", None)
        up, down = (None, None) if part.low_rank is None else part.low_rank
        shift = None
        if own is not None and (part.scale is not None or bias is not None):
            held = own.detach()
            shift = (held if bias is None else bias.to(held)) - held * _by_output(part.scale, layer, like)
        for name, tensor in (("scale", part.scale), ("up", up), ("down", down), ("shift", shift)):
            self.register_buffer(name, None if tensor is None else tensor.detach().to(like))

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        """What the layer gives, scaled and added to."""
        made: Tensor = self.layer(*args, **keywords)
        inputs = args[0] if args else keywords["input"]
        spread = (1,) * (self.layer.weight.dim() - 2)  # outputs of a convolution stand before its places
        if self.scale is not None:
            made = made * self.scale.reshape(-1, *spread)
        if self.up is not None:
            made = made + self._low_rank(inputs)
        return made if self.shift is None else made + self.shift.reshape(-1, *spread)

    def _low_rank(self, inputs: Tensor) -> Any:
        layer = self.layer
        if isinstance(layer, nn.Embedding):
            return functional.embedding(inputs, self.up) @ self.down
        if is_transposed_linear(layer):
            return inputs @ self.up @ self.down
        if isinstance(layer, nn.Linear):
            return functional.linear(functional.linear(inputs, self.down), self.up)
        # Each group of a convolution has the same few kernels on its own inputs, mixed for its own outputs.
        kernels = self.down.reshape(-1, *layer.weight.shape[1:]).repeat(layer.groups, *(1,) * (layer.weight.dim() - 1))
        found = layer._conv_forward(inputs, kernels, None)
        mixed = self.up.reshape(*self.up.shape, *(1,) * (layer.weight.dim() - 2))
        return _CONVOLUTIONS[type(layer)](found, mixed, groups=layer.groups)

    @property
    def weight(self) -> Tensor:
        """The weight that it amounts to."""
        low_rank = None if self.up is None else (self.up, self.down)
        return Part(self.scale, low_rank).applied(self.layer.weight)

    @property
    def bias(self) -> Tensor | None:
        """The bias that it amounts to."""
        own = getattr(self.layer, "bias", None)
        return own if own is None or self.shift is None else own * _by_output(self.scale, self.layer, own) + self.shift

    def __getattr__(self, name: str) -> Any:
        """All else as the layer has it, such as `in_features`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


def _by_output(scale: Tensor | None, layer: nn.Module, like: Tensor) -> Tensor:
    return torch.ones((), dtype=like.dtype, device=like.device) if scale is None else scale.reshape(-1).to(like)


class _Beside(nn.Module):
    """The parametrisation of a weight that is read and not called."""

    scale: Tensor | None
    up: Any
    down: Any

    def __init__(self, part: Part) -> None:
        super().__init__()
        up, down = (None, None) if part.low_rank is None else part.low_rank
        for name, tensor in (("scale", part.scale), ("up", up), ("down", down)):
            self.register_buffer(name, tensor)

    def forward(self, weight: Tensor) -> Tensor:
        low_rank = None if self.up is None else (self.up, self.down)
        return Part(self.scale, low_rank).applied(weight)


class _Instead(nn.Module):
    """The parametrisation of a vector that is replaced."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, weight: Tensor) -> Tensor:
        return self.value.to(weight)


def put_beside(network: nn.Module, parts: Mapping[str, Part], replaced: Weights) -> None:
    """Wrap the layers of a network in place; parameters of normalisation layers are overwritten, no other is.

    A tensor that several layers share has its part beside each of them.
    """
    tensors = dict(network.named_parameters())
    beside = {id(tensors[name]): part for name, part in parts.items()}
    instead = {id(tensors[name]): value for name, value in replaced.items()}
    done: dict[int, nn.Module | None] = {}
    for name, layer in list(network.named_modules(remove_duplicate=False)):
        if id(layer) in done:
            _put(network, name, done[id(layer)])
            continue
        done[id(layer)] = None
        own = {key: one for key, one in layer._parameters.items() if one is not None}
        if not any(id(one) in beside or id(one) in instead for one in own.values()):
            continue
        if is_normalisation(layer):
            with torch.no_grad():
                for one in own.values():
                    if id(one) in instead:
                        one.copy_(instead[id(one)])
        elif name and _is_called(layer):
            bias = own.get("bias")
            part = beside.get(id(layer.weight), Part())
            wrapped = BesideLayer(layer, part, None if bias is None else instead.get(id(bias)))
            done[id(layer)] = wrapped.train(layer.training)
            _put(network, name, wrapped)
        else:
            for key, one in own.items():
                if id(one) in beside:
                    parametrize.register_parametrization(layer, key, _Beside(beside[id(one)]))
                elif id(one) in instead:
                    parametrize.register_parametrization(layer, key, _Instead(instead[id(one)].clone()))


def _put(network: nn.Module, name: str, layer: nn.Module | None) -> None:
    """Put a layer in the place of that name; none leaves it as it is."""
    if layer is not None:
        parent, _, key = name.rpartition(".")
        setattr(network.get_submodule(parent), key, layer)


def _is_called(layer: nn.Module) -> bool:
    """Whether a layer is a linear map of what it is called with, so that something can be computed beside it."""
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None
    return isinstance(layer, nn.Linear) or type(layer) in _CONVOLUTIONS or is_transposed_linear(layer)
