"""Sending modules, state dicts and tensors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.moments import ErrorMoments
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.observation import of_tensor, undone
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


@pytest.mark.parametrize("channel", ["fading:wnr_db=10", "digital:wnr_db=9", "pcm:seconds=3600"])
def test_the_number_of_torch_s_threads_changes_no_bit(channel: str) -> None:
    weights = {"w": torch.randn(311, 307, generator=torch.Generator().manual_seed(0)).double()}
    found = []
    for num_threads in (3, 2, 1):
        torch.set_num_threads(num_threads)
        found.append(transmit(weights, channel=channel, seed=1).received["w"])
        assert torch.get_num_threads() == num_threads
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])


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


def test_gain_and_offset_are_undone_where_the_channel_was_and_nowhere_else() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5))
    arrived = transmit(network, channel=Quantisation(3), noisy=["0.weight"], seed=0)
    at_one = arrived.at_unit_gain()
    assert isinstance(arrived.gain, dict)
    assert isinstance(arrived.offset, dict)
    expected = (arrived.received[0].weight - arrived.offset["0.weight"]) / arrived.gain["0.weight"]
    assert torch.equal(at_one.received[0].weight, expected)
    assert (at_one.gain, at_one.offset) == (1.0, 0.0)
    assert torch.equal(at_one.received[1].weight, network[1].weight)


def test_a_tensor_whose_gain_is_not_told_is_refused() -> None:
    network = nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5))
    arrived = transmit(network, channel=Quantisation(3), noisy=["0.weight", "1.weight"], seed=0)
    with pytest.raises(InvalidConfig, match=r"tells no gain of '0.bias'"):
        replace(arrived, noisy=("0.bias",)).at_unit_gain()


@pytest.mark.parametrize("channel", ["quantise:num_bits=2", "truncate:num_bits=0", "digital:wnr_db=3"])
def test_at_unit_gain_the_error_has_no_mean_and_no_part_in_line_with_the_weights(channel: str) -> None:
    weights = {"w": 0.3 + torch.randn(5000, generator=torch.Generator().manual_seed(0)).exp()}
    arrived = transmit(weights, channel=channel_named(channel), seed=0).at_unit_gain()
    moments = ErrorMoments.of(weights["w"], arrived.received["w"])
    assert moments.mean_error == pytest.approx(0.0, abs=1e-6)
    assert moments.gain == pytest.approx(1.0, abs=1e-6)
    assert isinstance(arrived.noise_variance, dict)
    assert moments.mean_squared_error == pytest.approx(arrived.noise_variance["w"], rel=1e-5)


@pytest.mark.parametrize("channel", ["fading:wnr_db=10", "protected:wnr_db=3", "quantise:num_bits=3,dither=true"])
def test_channels_whose_error_has_mean_zero_tell_no_offset(channel: str) -> None:
    weights = {"head.weight": torch.randn(40, 30, generator=torch.Generator().manual_seed(0))}
    channel = channel.replace("protected:", "protected:names=head.*,")
    arrived = transmit(weights, channel=channel_named(channel), seed=0)
    assert of_tensor(arrived.offset, "head.weight") == 0.0


def test_sixteen_bits_are_rounded_once_when_the_offset_is_undone() -> None:
    received = torch.randn(1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    wide = (received.float() - 0.37) / 0.81
    assert torch.equal(undone(received, 0.81, 0.37), wide.bfloat16())


def test_a_channel_by_its_name() -> None:
    weights = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    named = transmit(weights, channel="quantise:num_bits=3", seed=0)
    assert torch.equal(named.received, transmit(weights, channel=Quantisation(3), seed=0).received)
    for channel, message in (("quantize", "quantise"), (Quantisation, "with its settings"), (3, "with its settings")):
        with pytest.raises(InvalidConfig, match=message):
            transmit(weights, channel=channel, seed=0)
