"""A look at the BatchNorms of a network: their order, who calls them, what is in front."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call, num_inputs, take
from quietnn.errors import InvalidConfig
from quietnn.watching.makers import Makers, eagerly, undisturbed

BatchNorm = nn.modules.batchnorm._BatchNorm
"""The parent of BatchNorm1d, 2d and 3d and of SyncBatchNorm; torch has no public name for it."""

CONVOLUTIONS: tuple[type[nn.Module], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""The convolutions whose patches can be read from their settings."""


@dataclass(frozen=True)
class Survey:
    """What a pass over two inputs tells of a network's BatchNorms.

    Attributes:
        places: the BatchNorms with statistics, in the order of their first calls, and the share of all layers that are
            called before each of them. Layers are those with parameters of their own.
        shared: names of those that are called more than once. Their statistics are those of a mixture of what their
            calls are given, which no single call can be compared with.
        feeders: names of the layers whose output goes straight into one.
    """

    places: Mapping[str, float]
    shared: tuple[str, ...]
    feeders: frozenset[str]


def survey(model: nn.Module, inputs: Inputs) -> Survey:
    """Look at the BatchNorms of a network and at what is in front of them, by a pass over the first two inputs.

    Raises:
        InvalidConfig: if inputs are no tensors or fewer than two.
        QuietnnError: if an input is not finite.

    >>> norm = nn.BatchNorm1d(3)
    >>> survey(nn.Sequential(norm, nn.Linear(3, 3), norm, nn.BatchNorm1d(3)), torch.rand(5, 3))
    Survey(places={'0': 0.0, '3': 0.75}, shared=('0',), feeders=frozenset({'1'}))
    """
    if num_inputs(inputs) < 2:
        raise InvalidConfig(
            f"calibration needs at least 2 inputs to tell how much they differ, but got {num_inputs(inputs)}; "
            "about 100 unlabelled ones are a good number"
        )
    num_calls: Counter[str] = Counter()
    num_before: dict[str, int] = {}
    makers: Makers[str] = Makers()
    feeders: set[str] = set()

    def at_norm(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        num_before.setdefault(name, num_calls.total())
        if (feeder := makers.of(given(args, kwargs))) is not None:
            feeders.add(feeder)

    def at_layer(name: str, layer: nn.Module, __: Any, output: Any) -> None:
        num_calls[name] += 1
        if type(layer) in (*CONVOLUTIONS, nn.Linear) and isinstance(output, Tensor):
            makers.remember(output, name)

    named = dict(model.named_modules())
    norms = {name: layer for name, layer in named.items() if has_statistics(layer)}
    if not norms:
        return Survey({}, (), frozenset())
    handles = [
        *(layer.register_forward_pre_hook(partial(at_norm, name), with_kwargs=True) for name, layer in norms.items()),
        *(
            layer.register_forward_hook(partial(at_layer, name))
            for name, layer in named.items()
            if name in norms or next(layer.parameters(recurse=False), None) is not None
        ),
    ]
    try:
        with undisturbed(model), eagerly(model), torch.no_grad():
            call(model, take(inputs, slice(2)))
    finally:
        for handle in handles:
            handle.remove()
    places = {name: count / max(num_calls.total(), 1) for name, count in num_before.items()}
    return Survey(places, tuple(name for name in places if num_calls[name] > 1), frozenset(feeders))


def has_statistics(module: nn.Module) -> bool:
    """Whether it is a BatchNorm that keeps running statistics."""
    return isinstance(module, BatchNorm) and module.running_mean is not None and module.running_var is not None


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a layer was called with, by position or by keyword."""
    given: Tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return given
