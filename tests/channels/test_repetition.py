"""Unequal protection: copies divide the noise that is not shared, and are counted."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel
from quietnn.channels.digital import CodedDigital
from quietnn.channels.memories import PCM, ReRAM
from quietnn.channels.moments import ErrorMoments
from quietnn.channels.quantisation import MantissaTruncation, Quantisation
from quietnn.channels.radio import BlockFading
from quietnn.channels.repetition import Repetition, protected
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance, mean_of
from quietnn.observation import Observation
from quietnn.weights import Weights


def test_copies_divide_the_noise_of_what_is_protected(shapes: dict[str, Tensor]) -> None:
    channel = Repetition(AWGN(noise_variance=0.01), {"gauss*": 4, "*": 1})
    observation = channel.transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        told = mean_of(observation.noise_variance[name])
        assert told == pytest.approx(0.01 / (4 if name == "gaussian" else 1))
        assert float((observation.received[name] - tensor).square().mean()) == pytest.approx(told, rel=0.05)


def test_copies_of_unequal_noise_are_weighed(shapes: dict[str, Tensor]) -> None:
    observation = Repetition(BlockFading(6.0, block=32), {"*": 3}).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    for name, tensor in shapes.items():
        ratio = (observation.received[name] - tensor).double().square() / observation.noise_variance[name]
        assert float(ratio.mean()) == pytest.approx(1.0, rel=0.05)


def test_the_rate_counts_every_copy(shapes: dict[str, Tensor]) -> None:
    channel = Repetition(AWGN(noise_variance=0.01), {"gaussian": 5})
    assert channel.rate(shapes) == pytest.approx(2.0)
    assert channel.rate({"other": torch.zeros(3)}) == 1.0
    assert channel.rate({}) == 1.0


def test_the_rate_counts_what_the_channel_itself_costs(shapes: dict[str, Tensor]) -> None:
    link = BlockFading(10.0, block=32, num_pilots=8)
    assert link.rate(shapes) == pytest.approx(1.25)
    assert Repetition(link, {"gaussian": 5}).rate(shapes) == pytest.approx(2.5)
    assert Repetition(Repetition(link, {"*": 2}), {"gaussian": 5}).rate(shapes) == pytest.approx(5.0)


def test_at_equal_channel_uses_total_squared_error_favours_nobody_but_a_weighed_one_does(
    shapes: dict[str, Tensor],
) -> None:
    """Protecting a tensor whose errors count more beats spreading the same uses evenly."""
    protected = Repetition(AWGN(noise_variance=0.01), {"gaussian": 5})
    even = AWGN(noise_variance=0.01 / protected.rate(shapes))
    importance = {"gaussian": 10.0, "laplace": 1.0, "uniform": 1.0, "channels": 1.0}

    def harm(channel: AWGN | Repetition) -> float:
        received = channel.transmit(shapes, seed=0).received
        return sum(importance[name] * float((received[name] - shapes[name]).square().mean()) for name in shapes)

    assert harm(protected) < harm(even)


@pytest.mark.parametrize("number", [0, 2.5, math.nan, math.inf, "3", 10**9])
def test_what_cannot_be_counted_is_refused(number: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"copies of 'a' is .*; give a whole number, 1 to 1000"):
        Repetition(AWGN(noise_variance=1.0), {"a": number})
    with pytest.raises(InvalidConfig, match="numbers by pattern"):
        Repetition(AWGN(noise_variance=1.0), number)
    with pytest.raises(InvalidConfig, match="numbers by pattern"):
        Repetition(AWGN(noise_variance=1.0), {})


NOISY = [
    Quantisation(2, dither=True),
    Quantisation(3, dither=True, clip="mse"),
    Quantisation(3, dither=True, per_channel=True, clip="mse"),
    PCM(0.0),
    PCM(86_400.0),
    PCM(86_400.0, compensate=False),
    ReRAM(1.0),
    ReRAM(86_400.0),
]


@pytest.mark.parametrize("copies", [2, 8])
@pytest.mark.parametrize("channel", NOISY, ids=str)
def test_copies_of_a_channel_with_a_gain_keep_what_follows_from_the_weights(
    channel: Channel, copies: int, shapes: dict[str, Tensor]
) -> None:
    observation = Repetition(channel, {"*": copies}).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    assert observation.gain == 1.0
    for name, tensor in shapes.items():
        measured = ErrorMoments.of(tensor, observation.received[name])
        assert measured.gain == pytest.approx(1.0, abs=0.02)
        assert mean_of(observation.noise_variance[name]) == pytest.approx(measured.noise_variance, rel=0.05)


def test_copies_of_copies_are_as_many_copies(shapes: dict[str, Tensor]) -> None:
    """A repeated memory, repeated: what follows from the weights is counted once."""
    nested = Repetition(Repetition(PCM(86_400.0), {"*": 2}), {"*": 4}).transmit(shapes, seed=0).noise_variance
    plain = Repetition(PCM(86_400.0), {"*": 8}).transmit(shapes, seed=0).noise_variance
    assert isinstance(nested, dict)
    assert isinstance(plain, dict)
    assert all(mean_of(nested[name]) == pytest.approx(mean_of(plain[name])) for name in shapes)


def test_what_is_sent_once_has_the_noise_of_one_copy(shapes: dict[str, Tensor]) -> None:
    observation = Repetition(ReRAM(1.0), {"gaussian": 3}).transmit(shapes, seed=0)
    once = ReRAM(1.0).transmit(shapes, seed=0)
    assert isinstance(observation.noise_variance, dict)
    assert isinstance(once.noise_variance, dict)
    assert observation.noise_variance["uniform"] == once.noise_variance["uniform"]
    assert mean_of(observation.noise_variance["gaussian"]) < 0.4 * mean_of(once.noise_variance["gaussian"])


@pytest.mark.parametrize("channel", [Quantisation(3), MantissaTruncation(2), CodedDigital(6.0)], ids=str)
def test_an_error_that_every_copy_repeats_is_refused(channel: Channel, shapes: dict[str, Tensor]) -> None:
    with pytest.raises(InvalidConfig, match="the same error in every copy"):
        Repetition(channel, {"*": 4}).transmit(shapes, seed=0)


@dataclass(frozen=True)
class Opaque:
    """A channel that says nothing of how it treats tensors."""

    channel: Channel

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        return self.channel.transmit(weights, seed=seed)


@pytest.mark.parametrize("channel", [AWGN(wnr_db=3.0), BlockFading(6.0)], ids=str)
def test_a_channel_that_says_nothing_gets_all_tensors_for_every_copy(
    channel: Channel, shapes: dict[str, Tensor]
) -> None:
    """One that settles gets only those that are still wanted, and has the same noise."""
    opaque, settling = (Repetition(link, {"gaussian": 3, "uniform": 2}) for link in (Opaque(channel), channel))
    one, other = (link.transmit(shapes, seed=4) for link in (opaque, settling))
    assert not opaque.settled(shapes).by_tensor
    assert settling.settled(shapes).by_tensor
    assert all(torch.equal(one.received[name], other.received[name]) for name in shapes)
    assert isinstance(one.noise_variance, dict)
    assert isinstance(other.noise_variance, dict)
    assert all(mean_of(one.noise_variance[name]) == mean_of(other.noise_variance[name]) for name in shapes)


def test_protection_reaches_the_named_tensors_only() -> None:
    weights = {
        name: torch.randn(1000, generator=torch.Generator().manual_seed(0)) for name in ("fc.weight", "body.weight")
    }
    noise = protected(0.0, copies=4).transmit(weights, seed=0).noise_variance
    assert isinstance(noise, dict)
    assert mean_of(noise["body.weight"]) == pytest.approx(4 * mean_of(noise["fc.weight"]))


def test_protection_that_reaches_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no tensor fits 'zzz\*'; name one of fc.weight"):
        protected(0.0, names="zzz*").transmit({"fc.weight": torch.ones(3)}, seed=0)
