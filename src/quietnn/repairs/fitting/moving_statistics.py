"""A network whose BatchNorms follow its weights while it is judged, without a layer being exchanged.

What is exchanged is the operation. While a BatchNorm of the network is called, `torch.nn.functional.batch_norm` on its
stored statistics uses others (`moving_norm.py`): those of a start, carried along, or, without one, a blend of stored
and seen. The layers stay, and so does what else they do: a child class of BatchNorm that adds an activation adds it
still, and a model may read `bn.running_mean`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from quietnn.repairs.fitting.moving_norm import Anchor, ExampleMoments, blend
from quietnn.watching.makers import Makers
from quietnn.watching.survey import CONVOLUTIONS, BatchNorm, given, has_statistics

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

_LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, *CONVOLUTIONS, *_TRANSPOSED)
"""Layers whose outputs have the scale of their parameters. A child class may do something else."""

_TINY = 1e-8
_LEAST = 1e-30
_ROUNDING = 1e-3


class Blending:
    """While this is entered, the BatchNorms of a network follow its weights; what they saw is remembered.

    A BatchNorm that the network calls more than once in a pass keeps its stored statistics: they are those of a mixture
    of what its calls are given, which no single call can be compared with. So does a child class that does not call
    `functional.batch_norm` on them. `run` calls the network, in evaluation mode, once; two examples are enough.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    >>> examples = torch.rand(20, 3, 5, 5) + 7
    >>> blending = Blending(network, lambda: network(examples[:2]))
    >>> with blending:
    ...     output = network(examples)
    >>> list(blending.statistics())
    ['1']
    """

    def __init__(self, network: nn.Module, run: Callable[[], object]) -> None:
        self._network = network
        self._layers = {name: layer for name, layer in network.named_modules() if has_statistics(layer)}
        self._anchors: Mapping[str, Anchor] = {}
        self._seen: dict[str, list[ExampleMoments]] = {}
        self._watch: Callable[[str, Tensor], object] | None = None
        self._is_alone = False
        """Whether statistics are those of the batch and nothing else."""
        self._hooks = ExitStack()
        shared = self._called_again(run) if self._layers else ()
        self._layers = {name: layer for name, layer in self._layers.items() if name not in shared}

    def __bool__(self) -> bool:
        """Whether there are statistics that follow the weights."""
        return bool(self._layers)

    def __enter__(self) -> Self:
        """Begin a pass over some examples; what an earlier one saw is forgotten."""
        self._seen = {}
        for name, layer in self._layers.items():
            exchange = _Exchange(partial(self._batch_norm, name, layer))
            # By hooks, not for the whole pass: activations that are computed again on the way back are blended, too.
            self._hooks.enter_context(layer.register_forward_pre_hook(exchange.begin))
            self._hooks.enter_context(layer.register_forward_hook(exchange.end, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        """The layers are as they were."""
        self._hooks.close()

    def statistics(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Mean and variance by layer, of all examples of the last pass together, however it was cut into calls."""
        return {
            name: self._following(name, layer, ExampleMoments.pooled(self._seen[name]))
            for name, layer in self._layers.items()
            if sum(len(part.means) for part in self._seen.get(name, ())) > 1
        }

    def anchor(self, start: nn.Module, run: Callable[[], object]) -> None:
        """From now on carry the statistics of a start along, a network of the same layers in evaluation mode.

        Its statistics are stored, for what is not followed: a single example, say. `run` calls it with all examples, at
        once or in chunks.
        """
        seen: dict[str, list[ExampleMoments]] = {}

        def watch(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.setdefault(name, []).append(ExampleMoments.of(given(args, kwargs)))

        layers = {name: layer for name, layer in start.named_modules() if name in self._layers}
        with ExitStack() as hooks, torch.no_grad():
            for name, layer in layers.items():
                hooks.enter_context(layer.register_forward_pre_hook(partial(watch, name), with_kwargs=True))
            run()
        write_statistics(self._network, {name: _stored(layer) for name, layer in layers.items()})
        self._anchors = {
            name: Anchor.of(ExampleMoments.pooled(parts), _stored(layers[name]), layers[name].eps)
            for name, parts in seen.items()
        }

    def scale_free(self, run: Callable[[], object]) -> frozenset[str]:
        """Names of the parameters whose layer feeds a blended BatchNorm and nothing else: their scale is undone.

        >>> network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
        >>> run = lambda: network(torch.eye(2))
        >>> sorted(Blending(network, run).scale_free(run))
        ['0.bias', '0.weight']
        """
        makers: Makers[nn.Module] = Makers()
        num_calls: Counter[nn.Module] = Counter()
        num_fed: Counter[nn.Module] = Counter()

        def at_layer(layer: nn.Module, _: object, output: object) -> None:
            num_calls[layer] += 1
            if isinstance(output, Tensor):
                makers.remember(output, layer)

        def at_norm(_: str, inputs: Tensor) -> None:
            if (maker := makers.of(inputs)) is not None:
                num_fed[maker] += 1

        norms = set(self._layers.values())
        layers = [layer for layer in self._network.modules() if layer not in norms]
        linear = [layer for layer in layers if type(layer) in _LINEAR]
        with ExitStack() as hooks:
            for layer in linear:
                hooks.enter_context(layer.register_forward_hook(at_layer))
            self._watching(at_norm, run)
        undone = self._undone([layer for layer in linear if 0 < num_calls[layer] == num_fed[layer]], run)
        # A parameter that some other layer shares keeps its scale there.
        keeping = [layer for layer in layers if layer not in undone]
        kept = {id(tensor) for layer in (*keeping, *norms) for tensor in _own(layer)}
        named = self._network.named_parameters(remove_duplicate=False)
        return frozenset(name for name, tensor in named if id(tensor) not in kept)

    def _undone(self, layers: Sequence[nn.Module], run: Callable[[], object]) -> Sequence[nn.Module]:
        """Those of some layers whose size changes nothing: what they make may be used elsewhere, too."""
        whole = self._outputs(run, ())
        if _are_close(self._outputs(run, layers), whole):
            return layers
        return [layer for layer in layers if _are_close(self._outputs(run, (layer,)), whole)]

    @torch.no_grad()
    def _outputs(self, run: Callable[[], object], halved: Sequence[nn.Module]) -> list[Tensor]:
        """What the network makes on statistics of the batch alone, with some layers at half their size."""
        outputs: list[Tensor] = []

        def keep(_: nn.Module, __: object, output: object) -> None:
            outputs.extend(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

        tensors = {id(tensor): tensor for layer in halved for tensor in _own(layer)}.values()
        before = [tensor.clone() for tensor in tensors]
        self._is_alone = True
        try:
            for tensor in tensors:
                tensor.mul_(0.5)
            with self._network.register_forward_hook(keep), self:
                run()
        finally:
            self._is_alone = False
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        return outputs

    def _called_again(self, run: Callable[[], object]) -> set[str]:
        """The BatchNorms that one call of the network calls more than once; a loss may call the network in chunks."""
        num_calls: Counter[str] = Counter()
        shared: set[str] = set()

        def count(name: str, _: Tensor) -> None:
            num_calls[name] += 1
            if num_calls[name] > 1:
                shared.add(name)

        with self._network.register_forward_pre_hook(lambda *_: num_calls.clear()):
            self._watching(count, run)
        return shared

    def _watching(self, watch: Callable[[str, Tensor], object], run: Callable[[], object]) -> None:
        """Show what enters each BatchNorm during a call of the network."""
        self._watch = watch
        try:
            with torch.no_grad(), self:
                run()
        finally:
            self._watch = None

    def _batch_norm(
        self,
        name: str,
        layer: BatchNorm,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if running_mean is not layer.running_mean or training:
            return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        if self._watch is not None:
            self._watch(name, input)
        moments = ExampleMoments.of(input)
        self._seen.setdefault(name, []).append(moments.detach())
        if len(input) < 2 and not self._is_alone:  # nothing tells its sampling error
            return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        mean, variance = self._following(name, layer, moments)
        scale = torch.rsqrt(variance if self._is_alone else variance + eps)
        shift = -mean * scale
        if weight is not None:
            scale, shift = scale * weight, shift * weight
        if bias is not None:
            shift = shift + bias
        shape = (1, -1, *(1,) * (input.dim() - 2))
        return (input * scale.view(shape) + shift.view(shape)).to(input.dtype)

    def _following(self, name: str, layer: BatchNorm, moments: ExampleMoments) -> tuple[Tensor, Tensor]:
        """Mean and variance of a layer where the examples have these moments."""
        if self._is_alone:
            # In proportion to the scale, so that halving a layer changes no digit, be its channels dead or not.
            return moments.mean, moments.squares.mean(0) + _TINY * moments.mean.square() + _LEAST
        anchor = self._anchors.get(name)
        return blend(moments, _stored(layer), layer.eps) if anchor is None else anchor.statistics(moments, layer.eps)


class _Exchange(TorchFunctionMode):
    """Another `functional.batch_norm` between the two ends of a layer's call; everything else is computed as ever."""

    def __init__(self, batch_norm: Callable[..., Tensor]) -> None:
        super().__init__()
        self._batch_norm = batch_norm
        self._depth = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return (self._batch_norm if func is functional.batch_norm else func)(*args, **(kwargs or {}))

    def begin(self, *_: object) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]
        self._depth += 1

    def end(self, *_: object) -> None:
        if self._depth:  # not so if some other hook failed before this one began
            self._depth -= 1
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _are_close(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether outputs differ by rounding only."""
    return len(some) == len(others) and all(
        bool((one.double() - other.double()).abs().max() <= _ROUNDING * other.double().abs().max())
        for one, other in zip(some, others, strict=True)
        if other.numel() and other.is_floating_point()
    )


def _stored(layer: nn.Module) -> tuple[Tensor, Tensor]:
    return layer.get_buffer("running_mean"), layer.get_buffer("running_var")


def _own(layer: nn.Module) -> Iterator[nn.Parameter]:
    return layer.parameters(recurse=False)


@torch.no_grad()
def write_statistics(network: nn.Module, statistics: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Give BatchNorm layers of a network these means and variances, in place."""
    for name, (mean, variance) in statistics.items():
        layer = network.get_submodule(name)
        layer.get_buffer("running_mean").copy_(mean)
        layer.get_buffer("running_var").copy_(variance)
