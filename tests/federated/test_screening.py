"""Which updates are superposed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quietnn.federated.devices import Diverged
from quietnn.federated.screening import screen

NOISY = ("a.weight",)


def state() -> dict[str, Tensor]:
    return {
        "a.weight": torch.ones(20),
        "bn.running_mean": torch.zeros(5),
        "bn.running_var": torch.ones(5),
        "bn.num_batches_tracked": torch.tensor(7),
    }


def update(scale: float = 0.1, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.rand(tensor.shape, generator=generator)
        if tensor.is_floating_point()
        else torch.ones_like(tensor)
        for name, tensor in state().items()
    }


def honest(num_devices: int = 4) -> dict[int, dict[str, Tensor]]:
    return {device: update(seed=device) for device in range(num_devices)}


def test_honest_updates_stay_and_are_not_touched() -> None:
    sent = honest()
    kept, refused = screen(state(), sent, noisy=NOISY, round_number=4)
    assert refused == {}
    assert kept.keys() == sent.keys()
    assert all(kept[device] is sent[device] for device in sent)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("a.weight", -50.0, "median of the others in the noisy parameters; the limit is 10"),
        ("a.weight", 1e30, "median of the others in the noisy parameters"),
        ("a.weight", math.nan, "not finite in a.weight"),
        ("a.weight", math.inf, "not finite in a.weight"),
        ("bn.running_mean", 1e6, "median of the others in what is sent without noise"),
        ("bn.running_var", -1.5, "a variance in bn.running_var is below zero"),
        ("bn.num_batches_tracked", -8, "the counter bn.num_batches_tracked changes by -8"),
        ("bn.num_batches_tracked", 2**62, "the counter"),
    ],
)
def test_one_bad_update_is_left_out_with_its_reason(name: str, value: float, reason: str) -> None:
    sent = honest()
    sent[2][name] = torch.full_like(sent[2][name], value)
    kept, refused = screen(state(), sent, noisy=NOISY, round_number=4)
    assert sorted(kept) == [0, 1, 3]
    assert list(refused) == [2]
    assert reason in refused[2]


@given(num_devices=st.integers(2, 9), exponent=st.floats(-30, 30), place=st.integers(0, 8))
def test_one_device_of_any_size_never_drives_out_most_others(num_devices: int, exponent: float, place: int) -> None:
    sent = honest(num_devices)
    bad = place % num_devices
    sent[bad] = update(10.0**exponent) | {"bn.running_var": torch.zeros(5)}
    kept, refused = screen(state(), sent, noisy=NOISY, round_number=4)
    assert kept
    if num_devices > 2:
        assert refused.keys() <= {bad}
    if exponent > 1 and num_devices > 2:
        assert bad in refused


def test_of_two_that_differ_the_larger_is_left_out() -> None:
    for tiny in (0.0, 1e-6):
        kept, _ = screen(state(), {0: update(), 1: update(tiny)}, noisy=NOISY, round_number=4)
        assert list(kept) == [1]


def test_a_bound_can_be_set_and_switched_off() -> None:
    sent = honest()
    sent[1] = update(0.5, seed=1)
    assert screen(state(), sent, noisy=NOISY, round_number=4)[1] == {}
    assert list(screen(state(), sent, noisy=NOISY, round_number=4, norm_bound=3.0)[1]) == [1]
    sent[1] = update(1e12, seed=1)
    assert screen(state(), sent, noisy=NOISY, round_number=4, norm_bound=math.inf)[1] == {}


def test_most_devices_decide_that_a_run_diverged() -> None:
    sent = honest()
    del sent[3]
    _, refused = screen(state(), sent, noisy=NOISY, round_number=4, diverged={3: "its loss became nan"})
    assert refused == {3: "its loss became nan"}
    sent[0]["a.weight"][0] = math.nan
    assert sorted(screen(state(), sent, noisy=NOISY, round_number=4, diverged={3: "its loss became nan"})[1]) == [
        0,
        3,
    ]
    sent[1]["a.weight"][0] = math.nan
    with pytest.raises(Diverged, match=r"3 of 4 devices left the finite numbers in round 5; device 0: .* in a\.weight"):
        screen(state(), sent, noisy=NOISY, round_number=4, diverged={3: "its loss became nan"})
    assert screen(state(), {}, noisy=NOISY, round_number=4, diverged={3: "its loss became nan"}, num_chosen=2)[0] == {}
