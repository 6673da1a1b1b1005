"""One seed for every random thing of a federation, so that no generator has a state to carry or to save."""

import hashlib

import torch

from quietnn.channels.randomness import check_seed


def derive_seed(seed: int, purpose: str, *counters: int) -> int:
    """A seed of 63 bits for one purpose at one place: the noise of a round, the order of a device's examples.

    Equal arguments give equal seeds; different ones give seeds that have nothing to do with each other.

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
