"""Who holds which training examples: the paper's partition, an even one, and a Dirichlet one."""

from collections.abc import Callable

import torch
from torch import Tensor

from quietnn.channels.randomness import generator_for
from quietnn.errors import InvalidConfig, unknown_choice

Parts = tuple[Tensor, ...]
"""The positions of each device's examples, by device number."""

SHARD_FRACTION = 0.2
"""The share of the examples that the paper deals out in shards: 10,000 of 50,000."""

MOST_DRAWS = 1000


def sharded(labels: Tensor, num_devices: int, *, seed: int, shard_fraction: float = SHARD_FRACTION) -> Parts:
    """The paper's partition: most of a device's examples are random, the rest is one shard of one or two classes.

    With 50,000 examples and 20 devices, each gets 2,000 random ones; the remaining 10,000 are sorted by label, cut into
    20 shards of 500, and each device gets one. No example is given twice; what does not divide evenly is left out.

    >>> parts = sharded(torch.arange(10).repeat(10), 5, seed=0)
    >>> [len(part) for part in parts], len(torch.cat(parts).unique())
    ([20, 20, 20, 20, 20], 100)
    """
    _check(len(labels), num_devices)
    generator = generator_for(seed, "partition")
    shard = int(shard_fraction * len(labels)) // num_devices
    own = (len(labels) - shard * num_devices) // num_devices
    order = torch.randperm(len(labels), generator=generator)
    rest = order[own * num_devices : (own + shard) * num_devices]
    rest = rest[torch.argsort(labels[rest], stable=True)]
    owners = torch.randperm(num_devices, generator=generator).tolist()
    return tuple(
        torch.cat([order[own * device : own * (device + 1)], rest[shard * owner : shard * (owner + 1)]])
        for device, owner in enumerate(owners)
    )


def even(labels: Tensor, num_devices: int, *, seed: int) -> Parts:
    """Independent and identically distributed: every device gets as many random examples as the others."""
    return sharded(labels, num_devices, seed=seed, shard_fraction=0.0)


def dirichlet(labels: Tensor, num_devices: int, *, seed: int, concentration: float, min_examples: int = 10) -> Parts:
    """Each class is split among the devices in shares drawn from a symmetric Dirichlet distribution.

    A small concentration gives devices with few classes and few examples, a large one an even partition. It is drawn
    again until every device has `min_examples`, and refused if that does not happen.
    """
    _check(len(labels), num_devices)
    if not concentration > 0:
        raise InvalidConfig(f"the concentration is {concentration}; it must be above 0, for example 0.5")
    shares_of = torch.distributions.Gamma(torch.full((num_devices,), concentration), torch.ones(num_devices))
    for draw in range(MOST_DRAWS):
        generator = generator_for(seed, "partition", draw)
        pieces: list[list[Tensor]] = [[] for _ in range(num_devices)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            for label in torch.unique(labels):
                members = torch.nonzero(labels == label).flatten()
                members = members[torch.randperm(len(members), generator=generator)]
                shares = shares_of.sample()
                ends = (shares.cumsum(0) / shares.sum().clamp_min(1e-300) * len(members)).round().long()
                for device, piece in enumerate(torch.tensor_split(members, ends[:-1])):
                    pieces[device].append(piece)
        parts = tuple(torch.cat(piece) for piece in pieces)
        if min(map(len, parts)) >= min_examples:
            return parts
    raise InvalidConfig(
        f"in {MOST_DRAWS} draws with concentration {concentration} some device always had fewer than {min_examples} "
        f"examples; use fewer than {num_devices} devices or a larger concentration"
    )


PARTITIONS: dict[str, Callable[..., Parts]] = {"sharded": sharded, "even": even, "dirichlet": dirichlet}


def make_parts(kind: str, labels: Tensor, num_devices: int, *, seed: int, concentration: float = 0.5) -> Parts:
    """The partition with this name."""
    if kind not in PARTITIONS:
        raise unknown_choice("partition", kind, PARTITIONS)
    more = {"concentration": concentration} if kind == "dirichlet" else {}
    return PARTITIONS[kind](labels, num_devices, seed=seed, **more)


def _check(num_examples: int, num_devices: int) -> None:
    if not 1 <= num_devices <= num_examples:
        raise InvalidConfig(
            f"{num_examples} examples cannot be shared by {num_devices} devices; give at least one device, "
            "and an example for each"
        )
