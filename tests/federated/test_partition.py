"""Who holds which examples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quietnn.errors import InvalidConfig
from quietnn.federated.partition import dirichlet, even, make_parts, sharded

LABELS = torch.arange(10).repeat(5000)[torch.randperm(50_000, generator=torch.Generator().manual_seed(0))]


def test_the_papers_partition_is_2000_random_examples_and_one_shard_of_500() -> None:
    parts = sharded(LABELS, 20, seed=0)
    assert [len(part) for part in parts] == [2500] * 20
    assert len(torch.unique(torch.cat(parts))) == 50_000
    for part in parts:
        assert len(torch.unique(LABELS[part[2000:]])) <= 2, "a shard holds one class, or the border of two"
        assert len(torch.unique(LABELS[part[:2000]])) == 10
    shards = torch.cat([part[2000:] for part in parts])
    assert torch.bincount(LABELS[shards], minlength=10).sum() == 10_000


def test_an_even_partition_gives_every_device_the_same_mixture() -> None:
    for part in even(LABELS, 20, seed=0):
        counts = torch.bincount(LABELS[part], minlength=10)
        assert counts.sum() == 2500
        assert counts.min() > 180  # 250 on average, a standard deviation of 15


@given(seed=st.integers(0, 1000), num_devices=st.integers(1, 30), kind=st.sampled_from(["sharded", "even"]))
def test_no_example_is_given_twice_and_hardly_any_is_left(seed: int, num_devices: int, kind: str) -> None:
    labels = LABELS[:997]
    parts = make_parts(kind, labels, num_devices, seed=seed)
    together = torch.cat(parts)
    assert len(torch.unique(together)) == len(together) > len(labels) - 2 * num_devices
    assert max(map(len, parts)) == min(map(len, parts))


def test_a_dirichlet_partition_covers_everything_and_follows_its_concentration() -> None:
    def spread(concentration: float) -> float:
        parts = dirichlet(LABELS, 10, seed=3, concentration=concentration)
        assert len(torch.unique(torch.cat(parts))) == 50_000
        shares = torch.stack([torch.bincount(LABELS[part], minlength=10) / len(part) for part in parts])
        return float(shares.std())

    assert spread(0.1) > 3 * spread(10.0)


def test_partitions_follow_their_seed() -> None:
    for kind in ("sharded", "even", "dirichlet"):
        one, again, other = (make_parts(kind, LABELS, 5, seed=seed) for seed in (1, 1, 2))
        assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_impossible_partitions_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="3 examples cannot be shared by 4 devices"):
        even(LABELS[:3], 4, seed=0)
    with pytest.raises(InvalidConfig, match="fewer than 90 examples"):
        dirichlet(LABELS[:1000], 10, seed=0, concentration=0.01, min_examples=90)
    with pytest.raises(InvalidConfig, match="did you mean 'sharded'"):
        make_parts("shraded", LABELS, 10, seed=0)
