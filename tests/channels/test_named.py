"""Channels asked for by name."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Rated
from quietnn.channels.named import channel_named, effective_wnr_db
from quietnn.channels.pcm import PCM
from quietnn.channels.protected import Protected
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.table import CHANNELS
from quietnn.channels.truncation import MantissaTruncation
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.noise import mean_of
from quietnn.targets import noisy_weights
from quietnn.tasks.models.resnet import thin_resnet

BUILT_IN = [name for name, row in CHANNELS.items() if not row.package]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_channel_can_be_named_and_used(name: str, shapes: dict[str, Tensor]) -> None:
    text = "protected:names=gauss*" if name == "protected" else name
    channel = channel_named(text, level=CHANNELS[name].example)
    observation = channel.transmit(shapes, seed=0)
    assert observation.received.keys() == shapes.keys()
    assert 0 < effective_wnr_db(shapes, observation.noise_variance) < 40


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_scalars_go_through_every_channel(name: str, dtype: torch.dtype) -> None:
    weights = {"scale": torch.tensor(0.7, dtype=dtype), "w": torch.linspace(-1, 1, 50, dtype=dtype)}
    text = "protected:names=scale" if name == "protected" else name
    observation = channel_named(text, level=CHANNELS[name].example).transmit(weights, seed=0)
    assert observation.received["scale"].shape == ()
    assert observation.received["scale"].dtype == dtype


def test_settings_have_the_types_of_their_fields() -> None:
    assert channel_named("quantise:num_bits=4, dither=true,clip=mse") == Quantisation(4, dither=True, clip="mse")
    assert channel_named("pcm:seconds=1e3,drift=0.5") == PCM(1000.0, drift=0.5)
    assert channel_named("awgn:wnr_db=3,power=second-moment") == AWGN(wnr_db=3.0, power="second-moment")


@pytest.mark.parametrize(
    ("text", "level", "word"),
    [
        ("flash", None, "pcm"),
        ("quantize", None, "did you mean 'quantise'"),
        ("pcm:second=3", None, "did you mean 'seconds'"),
        ("pcm", None, "needs seconds"),
        ("quantise:num_bits=four", None, "a number"),
        ("quantise:num_bits=2.5", None, "whole number"),
        ("quantise:num_bits=nan", None, "whole number"),
        ("quantise:num_bits=inf", None, "whole number"),
        ("quantise", float("nan"), "whole number"),
        ("fading:wnr_db=10,block=1e30", None, "1 to 2147483648"),
        ("reram:seconds=1,spread=1e300", None, "0 to 1000"),
        ("pcm:seconds=1e300", None, "0 to 1e.12"),
        ("protected:wnr_db=0,copies=0", None, "1 to 1000"),
        ("protected:wnr_db=0,copies=1e9", None, "1 to 1000"),
        ("fading:wnr_db=-400", None, "-100 or more"),
        ("sionna:wnr_db=10,delay_spread=1", None, "seconds, for example 1e-7"),
        ("quantise:num_bits=4,dither=yes", None, "true or false"),
        ("quantise:num_bits", None, "key=value"),
        ("quantise:num_bits=4", 3.0, "varied"),
        ("quantise:num_bits=1", None, "2 to 16"),
        ("awgn", None, "exactly one"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, level: float | None, word: str) -> None:
    with pytest.raises(QuietnnError, match=word):
        channel_named(text, level)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="channel is None; write a name"):
        channel_named(None)  # type: ignore[arg-type]


def test_protection_reaches_the_named_tensors_only() -> None:
    weights = {
        name: torch.randn(1000, generator=torch.Generator().manual_seed(0)) for name in ("fc.weight", "body.weight")
    }
    noise = Protected(0.0, copies=4).transmit(weights, seed=0).noise_variance
    assert isinstance(noise, dict)
    assert mean_of(noise["body.weight"]) == pytest.approx(4 * mean_of(noise["fc.weight"]))


def test_protection_that_reaches_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"no tensor fits 'zzz\*'; name one of fc.weight"):
        Protected(0.0, names="zzz*").transmit({"fc.weight": torch.ones(3)}, seed=0)


@pytest.mark.parametrize("make", [lambda: Quantisation(2.5), lambda: MantissaTruncation(1.5)])  # type: ignore[arg-type]
def test_half_a_bit_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidConfig, match="num_bits"):
        make()


@pytest.mark.parametrize("name", ["quantise", "truncate", "pcm", "reram", "digital"])
@pytest.mark.parametrize(
    "weights", [{"w": torch.zeros(5)}, {"w": torch.tensor(0.5)}, {}], ids=["zeros", "scalar", "none"]
)
def test_odd_weights_come_through(name: str, weights: dict[str, Tensor]) -> None:
    received = channel_named(name, level=CHANNELS[name].example).transmit(weights, seed=0).received
    assert received.keys() == weights.keys()
    assert all(torch.isfinite(tensor).all() for tensor in received.values())


@pytest.mark.parametrize("preset", ["protected-measured", "protected"])
def test_the_rival_of_a_protected_preset_takes_as_many_channel_uses(preset: str) -> None:
    def settings(name: str) -> NoisyInference:
        return load_config(NoisyInference, Path("media-radio"), preset=name)

    protected = settings(preset)
    channel = channel_named(protected.channel, protected.wnr_db[0])
    assert isinstance(channel, Rated)
    fair = protected.wnr_db[0] + 10 * math.log10(channel.rate(noisy_weights(thin_resnet(20))))
    rivals = [*settings("white-rival").wnr_db, *settings("white").wnr_db]
    assert min(abs(rival - fair) for rival in rivals) < 0.005


def test_no_noise_at_all() -> None:
    assert effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, 0.0) == float("inf")
    with pytest.raises(InvalidConfig, match="names 'v'"):
        effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, {"v": 1.0})
