"""A pass over all inputs that goes block by block: what hooks gather about a block can be used before the next runs.

Transformers are chains of blocks, each given what the one before made. All inputs go through the first block, then all
through the second. What comes out of a block is kept, and handed on in place of running the blocks before it again.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call, num_inputs
from quietnn.errors import QuietnnError
from quietnn.evidence import Evidence
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.survey import given

_Kept = dict[int, Any]
"""What came last out of each chain, for one batch."""

_Block = tuple[nn.Module, int]
"""A layer, and which chain it is in."""


class BlockByBlock:
    """A pass over all inputs in evaluation mode, in parts: one for each block, and one for what is behind the last.

    It is one part where a run of the first input shows that blocks do not hand on all there is, where inputs are
    streamed, or where more than `most` bytes would be kept between blocks.

    Args:
        model: the network. The first input goes through it at once, so hooks that gather are to be set later.
        evidence: the inputs.
        most: bytes of activations that may be kept between blocks.
        until: a layer at whose call a run may end. Hooks that are set before `parts` still see what enters it.

    Attributes:
        num_passes: the cost so far. Layers in front of the blocks run again in every part; each layer with parameters
            counts as its share of all calls.

    >>> class Chain(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    ...     def forward(self, x):
    ...         for block in self.blocks:
    ...             x = block(x)
    ...         return x
    >>> run = BlockByBlock(Chain(), Evidence(torch.rand(9, 2)), most=100)
    >>> len(list(run.parts())), run.num_passes
    (4, 1.0)
    """

    def __init__(self, model: nn.Module, evidence: Evidence, *, most: int, until: nn.Module | None = None) -> None:
        self.num_passes = 0.0
        self._model, self._evidence, self._until = model, evidence, until
        self._num_calls, self._calls_of_a_run = 0, 0
        self._blocks: list[_Block] = []
        if not evidence.is_streamed:
            with undisturbed(model), eagerly(model):
                self._look_for_blocks(evidence.first(1), most // len(evidence))

    def parts(self) -> Iterator[None]:
        """Yields after each part, when all inputs have gone through it."""
        kept: list[_Kept] = []
        with undisturbed(self._model), eagerly(self._model):
            for place in range(len(self._blocks) + 1):
                for number, (inputs, _) in enumerate(self._evidence.batches()):
                    if not place:
                        kept.append({})
                    calls = self._num_calls
                    self._run(inputs, place, kept[number])
                    if self._blocks:
                        share = num_inputs(inputs) / len(self._evidence)
                        self.num_passes += share * (self._num_calls - calls) / self._calls_of_a_run
                if not self._blocks:
                    self.num_passes = 1.0
                yield

    def _look_for_blocks(self, inputs: Inputs, most: int) -> None:
        """Take the lists of layers that are called once each in their order, if handing on what they make is enough."""
        lists = list(_lists(self._model))
        chain_of = {layer: number for number, layers in enumerate(lists) for layer in layers}
        called: list[nn.Module] = []
        sizes: list[int] = []

        def after(layer: nn.Module, _: object, output: Any) -> None:
            called.append(layer)
            sizes.append(sum(one.nbytes for one in _tensors(output)))

        with ExitStack() as hooks:
            for layer in chain_of:
                hooks.enter_context(layer.register_forward_hook(after))
            expected = self._run(inputs, 0, {})
        self._calls_of_a_run = self._num_calls
        used = dict.fromkeys(map(chain_of.__getitem__, called))
        inside = [layer for block in called for layer in block.modules() if _has_parameters(layer)]
        are_chains = called == [layer for number in used for layer in lists[number]] and len({*inside}) == len(inside)
        if not are_chains or max(sizes, default=0) * len(used) > most:
            return
        blocks = [(layer, chain_of[layer]) for layer in called]
        kept: _Kept = {}
        try:
            for place in range(len(blocks) + 1):
                self._blocks = blocks
                found = self._run(inputs, place, kept)
        except QuietnnError:
            found = []  # what is handed on was not all that was asked for
        are_equal = len(expected) == len(found) > 0 and all(map(torch.equal, expected, found))
        self._blocks = blocks if are_equal else []

    @torch.no_grad()
    def _run(self, inputs: Inputs, place: int, kept: _Kept) -> list[Tensor]:
        """Run one block on what is kept, or what is behind all of them; what then comes out, or enters the end."""
        ended: list[Tensor] = []

        def count(*_: object) -> None:
            self._num_calls += 1

        def keep(_: nn.Module, __: object, output: Any) -> None:
            kept[self._blocks[place][1]] = output
            raise _Enough

        def end(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal ended
            ended = [given(args, kwargs)]
            raise _Enough

        with ExitStack() as hooks:
            for layer, chain in self._blocks[:place]:
                hooks.enter_context(_handing_on(layer, kept[chain]))
            done = {layer for layer, _ in self._blocks[:place]}
            for layer in self._model.modules():
                if _has_parameters(layer) and layer not in done:
                    hooks.enter_context(layer.register_forward_pre_hook(count))
            if place < len(self._blocks):
                hooks.enter_context(self._blocks[place][0].register_forward_hook(keep))
            if self._until is not None:
                hooks.enter_context(self._until.register_forward_pre_hook(end, with_kwargs=True))
            try:
                return list(_tensors(call(self._model, inputs)))
            except _Enough:
                return ended


class _Enough(BaseException):
    """Ends a run where it has come far enough; no network is meant to catch it."""


@contextmanager
def _handing_on(layer: nn.Module, output: Any) -> Iterator[None]:
    """Let a layer return this, whatever it is given, for a while."""
    own = layer.__dict__.get("forward")
    layer.__dict__["forward"] = lambda *_, **__: output
    try:
        yield
    finally:
        del layer.__dict__["forward"]
        if own is not None:
            layer.__dict__["forward"] = own


def _lists(module: nn.Module) -> Iterator[list[nn.Module]]:
    """Lists of two or more layers of one kind, the outermost ones."""
    for child in module.children():
        layers = list(child.children())
        if type(child) in (nn.ModuleList, nn.Sequential) and len({type(one) for one in layers}) == 1 < len(layers):
            yield layers
        else:
            yield from _lists(child)


def _has_parameters(layer: nn.Module) -> bool:
    return next(layer.parameters(recurse=False), None) is not None


def _tensors(output: Any) -> Iterator[Tensor]:
    """All tensors in what a layer or a network returned.

    >>> [one.nbytes for one in _tensors((torch.zeros(2, 3), None, {"more": torch.zeros(1)}))]
    [24, 4]
    """
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list | Mapping):
        for one in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(one)
