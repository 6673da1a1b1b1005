"""A watched pass through a network: which layers it calls, what enters its BatchNorms, and who made that."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

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
class Feeder:
    """The call of a convolution or a linear layer whose output goes straight into a BatchNorm."""

    name: str
    layer: nn.Module
    position: int  # of this call among those of `Run.called`


class Run:
    """The hooks of one pass and what they remember; `at_norm` is shown what enters each BatchNorm with statistics."""

    def __init__(self, at_norm: "Callable[[Run, str, BatchNorm, Tensor], None]" = lambda *_: None) -> None:
        self._at_norm = at_norm
        self.called: list[nn.Module] = []
        """The other layers with parameters of their own that have been called so far, in order."""
        self._makers: Makers[tuple[Feeder, Tensor]] = Makers()

    def through(self, model: nn.Module, inputs: Inputs) -> Any:
        """Run the model once."""
        with ExitStack() as hooks:
            for name, module in model.named_modules():
                if has_statistics(module):
                    before = partial(self._before_norm, name)
                    hooks.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
                elif next(module.parameters(recurse=False), None) is not None:
                    after = partial(self._after_layer, name)
                    hooks.enter_context(module.register_forward_hook(after, with_kwargs=True))
            return call(model, inputs)

    def feeder(self, activations: Tensor) -> tuple[Feeder | None, Tensor | None]:
        """The layer that made this very tensor, if nothing has written into it since, and what it was given."""
        feeder, inputs = self._makers.of(activations) or (None, None)
        # BatchNorm counts dimension 1 as channels; a linear layer makes that its features only in two dimensions.
        is_foreign = feeder is not None and isinstance(feeder.layer, nn.Linear) and activations.dim() != 2
        return (None, None) if is_foreign else (feeder, inputs)

    def _before_norm(self, name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._at_norm(self, name, module, given(args, kwargs))

    def _after_layer(
        self, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        # Kinds are compared exactly: a child class may do something else with its weights.
        if type(layer) in (*CONVOLUTIONS, nn.Linear) and isinstance(output, Tensor):
            self._makers.remember(output, (Feeder(name, layer, len(self.called)), given(args, kwargs)))
        self.called.append(layer)


@dataclass(frozen=True)
class Survey:
    """What a pass over two inputs tells of a network's BatchNorms."""

    places: Mapping[str, float]
    """Those with statistics, in the order of their first calls, and the share of all layers that are called before."""
    shared: tuple[str, ...]
    """Those that are called more than once: no single call can be compared with statistics of a mixture."""
    feeders: frozenset[str]
    """The layers whose output goes straight into one."""


def survey(model: nn.Module, inputs: Inputs) -> Survey:
    """Look at the BatchNorms of a network and at what is in front of them, by a pass over the first two inputs.

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
    feeders: set[str] = set()

    def at_norm(run: Run, name: str, _: BatchNorm, activations: Tensor) -> None:
        num_before.setdefault(name, len(run.called) + num_calls.total())
        num_calls[name] += 1
        if (feeder := run.feeder(activations)[0]) is not None:
            feeders.add(feeder.name)

    if not any(has_statistics(layer) for layer in model.modules()):
        return Survey({}, (), frozenset())
    run = Run(at_norm)
    with undisturbed(model), eagerly(model), torch.no_grad():
        run.through(model, take(inputs, slice(2)))
    num_all = len(run.called) + num_calls.total()
    places = {name: count / max(num_all, 1) for name, count in num_before.items()}
    return Survey(places, tuple(name for name in places if num_calls[name] > 1), frozenset(feeders))


def has_statistics(module: nn.Module) -> TypeGuard[BatchNorm]:
    """Whether it is a BatchNorm that keeps running statistics."""
    return isinstance(module, BatchNorm) and module.running_mean is not None and module.running_var is not None


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a layer was called with, by position or by keyword."""
    given: Tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return given
