"""Counter-based Gaussian noise: any stretch of any tensor's noise can be drawn without the rest.

The generator is Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Its key is a hash
of the seed and the tensor's name, its counter the number of the block. So the noise of a tensor is the same in
whatever order, chunks or threads it is drawn, in memory or from a file.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from threading import RLock

import numpy as np
import torch
from torch import Tensor

from quietnn.errors import QuietnnError

BLOCK = 1 << 16
"""Values per counter. A stretch of noise must start at a multiple of it."""

_GLOBAL = RLock()
"""Held by whoever draws from torch's one global generator."""


def standard_normal(num_values: int, *, seed: int, name: str, start: int = 0) -> Tensor:
    """Independent `N(0, 1)` values `start .. start + num_values` of the noise of tensor `name`, in float32.

    >>> noise = standard_normal(3 * BLOCK, seed=1, name="conv.weight")
    >>> torch.equal(noise[BLOCK:], standard_normal(2 * BLOCK, seed=1, name="conv.weight", start=BLOCK))
    True
    """
    return _drawn(np.random.Generator.standard_normal, num_values, seed=seed, name=name, start=start)


def uniform(num_values: int, *, seed: int, name: str) -> Tensor:
    """Independent values between 0 and 1, drawn like `standard_normal`.

    >>> values = uniform(5, seed=1, name="dither")
    >>> bool((values >= 0).all() and (values < 1).all())
    True
    """
    return _drawn(np.random.Generator.random, num_values, seed=seed, name=name, start=0)


def _drawn(draw: Callable[..., object], num_values: int, *, seed: int, name: str, start: int) -> Tensor:
    """A stretch of a tensor's randomness, each block by a generator of its own."""
    key = key_of(seed, name)
    if start % BLOCK:
        raise QuietnnError(f"noise starts at a multiple of {BLOCK} values, not at {start}; draw from the block's start")
    values = np.empty(num_values, dtype=np.float32)
    for offset in range(0, num_values, BLOCK):
        generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, (start + offset) // BLOCK, 0]))
        draw(generator, out=values[offset : offset + BLOCK], dtype=np.float32)
    return torch.from_numpy(values)


def key_of(seed: int, name: str) -> int:
    """The generator's key: 128 bits that stand for a seed and a name."""
    check_seed(seed)
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), "little")


def derive_seed(seed: int, purpose: str, *counters: int) -> int:
    """A seed of 63 bits for one purpose at one place: the noise of a round, the order of a device's examples.

    Equal arguments give equal seeds; different ones give seeds that have nothing to do with each other. So no generator
    has a state to carry or to save.

    >>> derive_seed(0, "noise", 3) == derive_seed(0, "noise", 3)
    True
    >>> derive_seed(0, "noise", 3) == derive_seed(0, "noise", 4)
    False
    """
    check_seed(seed)
    text = ":".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator_for(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A fresh generator for one purpose at one place."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, *counters))


def check_seed(seed: int) -> None:
    """Refuse a seed that is not a whole number of at least zero."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise QuietnnError(f"seed is {seed!r}; it must be a whole number, zero or more")


@contextmanager
def global_randomness() -> Iterator[None]:
    """Lend torch's global generator to a library that draws from no other: to one thread at a time, then as it was."""
    with _GLOBAL, torch.random.fork_rng(devices=[]):
        yield
