"""Which layer made a tensor, found by watching tensors in a forward pass instead of reading names."""

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Maker = TypeVar("Maker")


def eagerly() -> AbstractContextManager[Any]:
    """Run compiled networks as they were written: a compiled one does not call the hooks that watch it."""
    return torch.compiler.set_stance("force_eager") if hasattr(torch.compiler, "set_stance") else nullcontext()


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
