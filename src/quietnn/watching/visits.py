"""One forward pass that stops at every BatchNorm, lets a rule choose its statistics, and goes on with them."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from quietnn.batches import Inputs, call, check_finite, check_inputs, logits_of, take
from quietnn.errors import InvalidConfig
from quietnn.watching.makers import Makers, eagerly
from quietnn.watching.undisturbed import STATISTICS, undisturbed

BatchNorm = nn.modules.batchnorm._BatchNorm
"""The parent of BatchNorm1d, 2d and 3d and of SyncBatchNorm; torch has no public name for it."""

CONVOLUTIONS: tuple[type[nn.Module], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""The convolutions whose patches can be read from their settings."""


@dataclass(frozen=True)
class Feeder:
    """The call of a layer whose output goes straight into a BatchNorm.

    Attributes:
        name: of the layer.
        layer: a convolution or a linear layer.
        inputs: what this call was given.
        position: of this call among those of `Visit.called`.
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    position: int


@dataclass(frozen=True)
class Visit:
    """One arrival at a BatchNorm.

    Attributes:
        name: of the BatchNorm.
        mean: its clean running mean, as the sender gave it.
        variance: its clean running variance.
        epsilon: what it adds to the variance.
        activations: what enters it, (images, channels, ...).
        feeder: the layer in front; None where that is a sum, a concatenation or a layer of another kind.
        called: the layers with parameters of their own that have been called so far, in order.
    """

    name: str
    mean: Tensor
    variance: Tensor
    epsilon: float
    activations: Tensor
    feeder: Feeder | None
    called: Sequence[nn.Module]


@dataclass(frozen=True)
class Arrival:
    """What came out of the pass.

    Attributes:
        output: the network's outputs, or its `logits` where it has some.
        feeder: the layer that made it.
        called: as in `Visit`.
    """

    output: Tensor
    feeder: Feeder | None
    called: Sequence[nn.Module]


Rule = Callable[[Visit], tuple[Tensor, Tensor]]
"""From an arrival to the mean and variance to use there."""


def visit_batch_norms(
    model: nn.Module, inputs: Inputs, rule: Rule, finish: Callable[[Arrival], None] | None = None
) -> tuple[str, ...]:
    """Set the statistics of every BatchNorm by a rule, in the order in which one forward pass meets them.

    Those that are shared are shown to no rule and keep their statistics, see `Survey`. `finish` is shown
    what comes out. Modes, counters, momentum and other buffers stay as they were; if anything fails, the statistics do
    too.

    Returns:
        The names of the BatchNorms that are shared.

    Raises:
        InvalidConfig: if inputs are no tensors or fewer than two, or no BatchNorm with running statistics is met.
        QuietnnError: if an input is not finite.
    """
    shared = survey(model, inputs).shared
    with undisturbed(model), eagerly(model):
        _Tour(rule, {model.get_submodule(name) for name in shared}).through(model, inputs, finish)
    return shared


@dataclass(frozen=True)
class Survey:
    """What a pass over two inputs tells of a network's BatchNorms.

    Attributes:
        shared: names of those that are called more than once. Their statistics are those of a mixture of what their
            calls are given, which no single call can be compared with.
        feeders: names of the layers whose output goes straight into one.
    """

    shared: tuple[str, ...]
    feeders: frozenset[str]


def survey(model: nn.Module, inputs: Inputs) -> Survey:
    """Look at the BatchNorms of a network and at what is in front of them, by a pass over the first two inputs.

    >>> norm = nn.BatchNorm1d(3)
    >>> survey(nn.Sequential(norm, nn.Linear(3, 3), norm, nn.BatchNorm1d(3)), torch.rand(5, 3))
    Survey(shared=('0',), feeders=frozenset({'1'}))
    """
    _check_inputs(inputs)
    num_calls: Counter[str] = Counter()
    makers: Makers[str] = Makers()
    feeders: set[str] = set()

    def at_norm(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        num_calls[name] += 1
        if (feeder := makers.of(given(args, kwargs))) is not None:
            feeders.add(feeder)

    def at_layer(name: str, _: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            makers.remember(output, name)

    named = dict(model.named_modules())
    norms = {name: layer for name, layer in named.items() if _has_statistics(layer)}
    if not norms:
        return Survey((), frozenset())
    layers = {name: layer for name, layer in named.items() if type(layer) in (*CONVOLUTIONS, nn.Linear)}
    handles = [
        *(layer.register_forward_pre_hook(partial(at_norm, name), with_kwargs=True) for name, layer in norms.items()),
        *(layer.register_forward_hook(partial(at_layer, name)) for name, layer in layers.items()),
    ]
    try:
        with undisturbed(model), eagerly(model), torch.no_grad():
            call(model, take(inputs, slice(2)))
    finally:
        for handle in handles:
            handle.remove()
    return Survey(tuple(name for name, count in num_calls.items() if count > 1), frozenset(feeders))


class _Tour:
    """The hooks of one pass and what they remember."""

    def __init__(self, rule: Rule, shared: Collection[nn.Module]) -> None:
        self._rule = rule
        self._shared = shared
        self._called: list[nn.Module] = []
        self._makers: Makers[Feeder] = Makers()
        self._clean: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def through(self, model: nn.Module, inputs: Inputs, finish: Callable[[Arrival], None] | None) -> None:
        """Run the model once; statistics are put back if anything fails."""
        handles = [self._hook(name, module) for name, module in model.named_modules()]
        try:
            output = call(model, inputs)
            if not self._clean and not self._shared:
                raise InvalidConfig(
                    "this network has no BatchNorm with running statistics, so there is nothing to calibrate: "
                    "LayerNorm, GroupNorm and the like take their statistics from each input afresh"
                )
            if finish is not None:
                logits = logits_of(output)
                finish(Arrival(logits, self._feeder(logits), self._called))
        except BaseException:
            for module, (mean, variance) in self._clean.items():
                _write(module, mean, variance)
            raise
        finally:
            for handle in handles:
                if handle is not None:
                    handle.remove()

    def _hook(self, name: str, module: nn.Module) -> RemovableHandle | None:
        if isinstance(module, BatchNorm):
            return module.register_forward_pre_hook(partial(self._at_batch_norm, name), with_kwargs=True)
        if next(module.parameters(recurse=False), None) is not None:
            return module.register_forward_hook(partial(self._at_layer, name), with_kwargs=True)
        return None

    def _at_layer(
        self, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        # Kinds are compared exactly: a child class may do something else with its weights.
        if type(layer) in (*CONVOLUTIONS, nn.Linear) and isinstance(output, Tensor):
            self._makers.remember(output, Feeder(name, layer, given(args, kwargs), len(self._called)))
        self._called.append(layer)

    def _at_batch_norm(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(module, BatchNorm)
        if not _has_statistics(module) or module in self._shared or module in self._clean:
            return
        mean, variance = (module.get_buffer(statistic) for statistic in STATISTICS)
        activations = given(args, kwargs)
        clean = self._clean[module] = mean.clone(), variance.clone()
        visit = Visit(name, *clean, module.eps, activations, self._feeder(activations), self._called)
        _write(module, *self._rule(visit))

    def _feeder(self, activations: Tensor) -> Feeder | None:
        """The layer that made this very tensor, if nothing has written into it since."""
        feeder = self._makers.of(activations)
        # BatchNorm counts dimension 1 as channels; a linear layer makes that its features only in two dimensions.
        is_foreign = feeder is not None and isinstance(feeder.layer, nn.Linear) and activations.dim() != 2
        return None if is_foreign else feeder


def _has_statistics(module: nn.Module) -> bool:
    return isinstance(module, BatchNorm) and module.running_mean is not None and module.running_var is not None


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a layer was called with, by position or by keyword."""
    given: Tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return given


def _write(module: nn.Module, mean: Tensor, variance: Tensor) -> None:
    module.get_buffer("running_mean").copy_(mean)
    module.get_buffer("running_var").copy_(variance)


def _check_inputs(inputs: Inputs) -> None:
    num_inputs = check_inputs(inputs)
    if num_inputs < 2:
        raise InvalidConfig(
            f"calibration needs at least 2 inputs to tell how much they differ, but got {num_inputs}; "
            "about 100 unlabelled ones are a good number"
        )
    check_finite(inputs)
