"""Sending modules, state dicts and tensors."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidWeights, QuietnnError
from quietnn.weights import NORMALISATION_TYPES

Snapshot = Callable[[Mapping[str, Tensor]], dict[str, bytes]]
NOISY = {"token", "conv.weight", "conv.bias", "embed.weight", "head.weight", "head.bias"}


@pytest.mark.parametrize("kind", ["module", "state"])
@pytest.mark.parametrize("in_place", [False, True])
def test_noisy_parameters_change_and_nothing_else(
    tiny_net: nn.Module, snapshot: Snapshot, kind: str, in_place: bool
) -> None:
    before = snapshot(tiny_net.state_dict())
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    received = transmit(target, wnr_db=0.0, seed=0, in_place=in_place).received
    after = snapshot(received.state_dict() if isinstance(received, nn.Module) else received)
    assert {name for name in before if before[name] != after[name]} == NOISY
    assert (snapshot(tiny_net.state_dict()) == before) == (not in_place)
    assert (received is target) == in_place


def test_module_and_state_dict_meet_the_same_noise(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    by_module = transmit(tiny_net, wnr_db=3.0, seed=5)
    by_state = transmit(tiny_net.state_dict(), wnr_db=3.0, seed=5)
    assert by_module.noise_variance == by_state.noise_variance
    assert snapshot(by_module.received.state_dict()) == snapshot(by_state.received)


def test_tied_weights_get_one_draw(tiny_net: nn.Module) -> None:
    received = transmit(tiny_net, noise_variance=1.0, seed=0).received
    assert received.head.weight is received.embed.weight
    state = transmit(tiny_net.state_dict(), noise_variance=1.0, seed=0).received
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()
    alone = transmit({"embed.weight": tiny_net.embed.weight.detach()}, noise_variance=1.0, seed=0).received
    assert torch.equal(alone["embed.weight"], state["embed.weight"])
    assert torch.equal(alone["embed.weight"], received.embed.weight)


def test_tied_weights_count_once_in_the_wnr() -> None:
    shared, other = torch.full((2, 2), 5.0), torch.zeros(2, 2)
    tied = transmit({"a.weight": shared, "b.weight": shared, "c.weight": other}, wnr_db=0.0, seed=0)
    single = transmit({"a.weight": shared, "c.weight": other}, wnr_db=0.0, seed=0)
    assert tied.noise_variance == single.noise_variance == 6.25


def test_a_tensor() -> None:
    observation = transmit(torch.zeros(20_000), noise_variance=4.0, seed=1)
    assert observation.received.var().item() == pytest.approx(4.0, rel=0.05)


def test_infinite_wnr_is_a_channel_without_noise(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    observation = transmit(tiny_net, wnr_db=math.inf, seed=0)
    assert observation.noise_variance == 0.0
    assert snapshot(observation.received.state_dict()) == snapshot(tiny_net.state_dict())


def test_a_channel_of_your_own(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    by_channel = transmit(tiny_net, channel=AWGN(wnr_db=2.0), seed=3).received
    by_ratio = transmit(tiny_net, wnr_db=2.0, seed=3).received
    assert snapshot(by_channel.state_dict()) == snapshot(by_ratio.state_dict())
    with pytest.raises(QuietnnError, match=r"either a channel or its noise, not both"):
        transmit(tiny_net, channel=AWGN(wnr_db=2.0), wnr_db=2.0, seed=3)


def test_normalisation_types_and_names_of_your_own(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    before = snapshot(tiny_net.state_dict())
    clean = transmit(tiny_net, wnr_db=0.0, seed=0, normalisation=(*NORMALISATION_TYPES, nn.Conv2d)).received
    assert snapshot(clean.state_dict())["conv.weight"] == before["conv.weight"]
    chosen = snapshot(transmit(tiny_net, wnr_db=0.0, seed=0, noisy=["ln.weight", "conv.bias"]).received.state_dict())
    assert {name for name in before if before[name] != chosen[name]} == {"conv.bias", "ln.weight"}


@pytest.mark.parametrize("kind", ["module", "state"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wnr_db": math.nan}, "nan dB has no meaning"),
        ({"wnr_db": -math.inf}, "-inf dB has no meaning"),
        ({"noise_variance": -1.0}, "noise_variance is -1.0"),
        ({"noise_variance": 1.0, "seed": -3}, "seed is -3"),
        ({"noise_variance": 1.0, "noisy": ["gone"]}, "'gone' is not a tensor of this model"),
        ({}, "give exactly one"),
    ],
)
def test_a_failure_changes_nothing(
    tiny_net: nn.Module, snapshot: Snapshot, kind: str, arguments: dict[str, object], message: str
) -> None:
    before = snapshot(tiny_net.state_dict())
    target = tiny_net if kind == "module" else tiny_net.state_dict()
    with pytest.raises(QuietnnError, match=message):
        transmit(target, in_place=True, **{"seed": 0, **arguments})  # type: ignore[arg-type]
    assert snapshot(tiny_net.state_dict()) == before


def test_weights_that_are_not_finite_change_nothing(tiny_net: nn.Module, snapshot: Snapshot) -> None:
    with torch.no_grad():
        tiny_net.head.bias[0] = math.inf
    before = snapshot(tiny_net.state_dict())
    with pytest.raises(InvalidWeights, match=r"head.bias holds 1 values that are not finite"):
        transmit(tiny_net, wnr_db=0.0, seed=0, in_place=True)
    assert snapshot(tiny_net.state_dict()) == before


def test_no_noisy_parameter_at_all() -> None:
    with pytest.raises(InvalidWeights, match=r"no noisy parameter at all"):
        transmit(nn.LayerNorm(3), wnr_db=0.0, seed=0)
