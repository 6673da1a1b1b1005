"""Networks that are run to be watched: as they were written, left as they were, each tensor known by its maker."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Maker = TypeVar("Maker")

STATISTICS = ("running_mean", "running_var")
"""The buffers of a BatchNorm that are not put back."""

_LOCK = Lock()
_eager = ExitStack()
_num_uses = 0


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then modes and buffers, such as one that counts calls, are what they were.

    >>> model = nn.BatchNorm1d(2).train()
    >>> with undisturbed(model):
    ...     model.training, model.num_batches_tracked.add_(7)
    (False, tensor(7))
    >>> model.training, model.num_batches_tracked
    (True, tensor(0))
    """
    modes = {module: module.training for module in model.modules()}
    buffers = [
        (module, name, buffer, buffer.clone(), _version(buffer))
        for module in modes
        for name, buffer in module._buffers.items()
        if buffer is not None and not (isinstance(module, nn.modules.batchnorm._BatchNorm) and name in STATISTICS)
    ]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for module, name, buffer, before, version in buffers:
                module._buffers[name] = buffer
                if version is None or version != _version(buffer):
                    buffer.copy_(before)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """Run a compiled network as it was written: a compiled one does not call the hooks that watch it.

    How torch runs compiled networks is one setting for all threads; it is as before once the last of several uses
    ends, and is left alone where nothing is compiled.
    """
    global _num_uses
    if not _is_compiled(model):
        yield
        return
    with _LOCK:
        if _num_uses == 0:
            _eager.enter_context(torch.compiler.set_stance("force_eager"))
        _num_uses += 1
    try:
        yield
    finally:
        with _LOCK:
            _num_uses -= 1
            if _num_uses == 0:
                _eager.close()


def _is_compiled(model: nn.Module) -> bool:
    """Whether a network, or a part of it, went through `torch.compile` or its own `compile`."""
    return any(
        isinstance(getattr(layer, "_orig_mod", None), nn.Module)
        or getattr(layer, "_compiled_call_impl", None) is not None
        for layer in model.modules()
    )


class Makers(Generic[Maker]):
    """Remembers who made each tensor, for as long as the tensor itself lives and nobody writes into it."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[Tensor], int, Maker]] = {}

    def remember(self, tensor: Tensor, maker: Maker) -> None:
        """Note the maker of a tensor; the reference is weak, so that activations are not kept from being freed.

        A tensor of inference mode is passed over: it does not count what is written into it.
        """
        if tensor.is_inference():
            return
        key = id(tensor)
        reference = weakref.ref(tensor, lambda _: self._made.pop(key, None))
        self._made[key] = (reference, tensor._version, maker)

    def of(self, tensor: Tensor) -> Maker | None:
        """The maker of this very tensor; None if it is not known or the tensor has been written into since."""
        reference, version, maker = self._made.get(id(tensor), (None, 0, None))
        if reference is None or reference() is not tensor or version != tensor._version:
            return None
        return maker
