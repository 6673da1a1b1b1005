"""Media asked for by name."""

import pytest
import torch
from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.named import MEDIA, Protected, effective_wnr_db, level_of, medium_named
from quietnn.channels.pcm import PCM
from quietnn.channels.quantisation import Quantisation
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.noise import mean_of

LEVELS = {"wnr_db": 10.0, "num_bits": 3.0, "seconds": 1.0}


@pytest.mark.parametrize("name", [name for name in MEDIA if name not in ("aihwkit", "sionna")])
def test_every_built_in_medium_can_be_named_and_used(name: str, shapes: dict[str, Tensor]) -> None:
    medium = medium_named(name, level=LEVELS[level_of(name)])
    observation = medium.transmit(shapes, seed=0)
    assert observation.received.keys() == shapes.keys()
    assert 0 < effective_wnr_db(shapes, observation.noise_variance) < 40


def test_settings_have_the_types_of_their_fields() -> None:
    assert medium_named("quantise:num_bits=4, dither=true,clip=mse") == Quantisation(4, dither=True, clip="mse")
    assert medium_named("pcm:seconds=1e3,drift=0.5") == PCM(1000.0, drift=0.5)
    assert medium_named("awgn:wnr_db=3,power=second-moment") == AWGN(wnr_db=3.0, power="second-moment")


@pytest.mark.parametrize(
    ("text", "level", "word"),
    [
        ("flash", None, "pcm"),
        ("quantize", None, "did you mean 'quantise'"),
        ("pcm:second=3", None, "did you mean 'seconds'"),
        ("pcm", None, "needs seconds"),
        ("quantise:num_bits=four", None, "a number"),
        ("quantise:num_bits=2.5", None, "whole number"),
        ("quantise:num_bits=4,dither=yes", None, "true or false"),
        ("quantise:num_bits", None, "key=value"),
        ("quantise:num_bits=4", 3.0, "varied"),
        ("quantise:num_bits=1", None, "2 to 16"),
        ("awgn", None, "exactly one"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, level: float | None, word: str) -> None:
    with pytest.raises(QuietnnError, match=word):
        medium_named(text, level)


def test_protection_reaches_the_named_tensors_only() -> None:
    weights = {
        name: torch.randn(1000, generator=torch.Generator().manual_seed(0)) for name in ("fc.weight", "body.weight")
    }
    noise = Protected(0.0, copies=4).transmit(weights, seed=0).noise_variance
    assert isinstance(noise, dict)
    assert mean_of(noise["body.weight"]) == pytest.approx(4 * mean_of(noise["fc.weight"]))


def test_no_noise_at_all() -> None:
    assert effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, 0.0) == float("inf")
    with pytest.raises(InvalidConfig, match="names 'v'"):
        effective_wnr_db({"w": torch.tensor([0.0, 1.0])}, {"v": 1.0})
