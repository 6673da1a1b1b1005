"""Media by name, for configurations and the command line: `"pcm:compensate=false"`, `"quantise:num_bits=4"`."""

import dataclasses
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from quietnn.channels.aihwkit_memory import AihwkitMemory
from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Medium
from quietnn.channels.digital import CodedDigital
from quietnn.channels.fading import BlockFading
from quietnn.channels.pcm import PCM
from quietnn.channels.quantisation import Quantisation
from quietnn.channels.repetition import Repetition
from quietnn.channels.reram import ReRAM
from quietnn.channels.sionna_radio import SionnaRadio
from quietnn.channels.truncation import MantissaTruncation
from quietnn.errors import InvalidConfig, suggest, unknown_choice
from quietnn.noise import NoiseVariance, mean_noise, noise_by_tensor, one_variance
from quietnn.observation import Observation
from quietnn.units import ratio_to_db
from quietnn.weights import Weights, WeightStatistics


@dataclass(frozen=True)
class Protected:
    """White noise with chosen tensors sent several times, see `Repetition`.

    Attributes:
        wnr_db: of what is sent once.
        names: patterns of the protected tensors' names, with `|` between them.
        copies: how often those are sent.
    """

    wnr_db: float
    names: str = "conv1.*|fc.*|linear.*|head.*|classifier.*"
    copies: int = 4

    def __post_init__(self) -> None:
        """Refuse a ratio that is none, and less than one copy."""
        _ = self.medium

    @property
    def medium(self) -> Repetition:
        """The link itself."""
        return Repetition(AWGN(wnr_db=self.wnr_db), dict.fromkeys(self.names.split("|"), self.copies))

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The weights, some of them with less noise."""
        return self.medium.transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> Medium:
        """The link with its noise set by all weights, which sends every tensor by itself."""
        return self.medium.settled(weights)

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        return self.medium.rate(weights)


@dataclass(frozen=True)
class NamedMedium:
    """A medium that can be asked for by name.

    Attributes:
        make: builds it from its settings.
        level: the setting that a sweep varies.
        what: one line about it.
    """

    make: Callable[..., Medium]
    level: str
    what: str


MEDIA: dict[str, NamedMedium] = {
    "awgn": NamedMedium(AWGN, "wnr_db", "white Gaussian noise"),
    "quantise": NamedMedium(Quantisation, "num_bits", "uniform quantisation of 2 to 16 bits"),
    "truncate": NamedMedium(MantissaTruncation, "num_bits", "mantissas cut or rounded to a few bits"),
    "pcm": NamedMedium(PCM, "seconds", "phase-change memory after some time"),
    "reram": NamedMedium(ReRAM, "seconds", "resistive memory after 1 s, a day, two days"),
    "fading": NamedMedium(BlockFading, "wnr_db", "radio with Rayleigh block fading"),
    "protected": NamedMedium(Protected, "wnr_db", "white noise, chosen tensors sent several times"),
    "digital": NamedMedium(CodedDigital, "wnr_db", "quantised and coded at capacity"),
    "aihwkit": NamedMedium(AihwkitMemory, "seconds", "memory by aihwkit's models (needs aihwkit)"),
    "sionna": NamedMedium(SionnaRadio, "wnr_db", "OFDM by Sionna's channels (needs the [wireless] extra)"),
}
"""Every medium a configuration or a command can name."""


def medium_named(text: str, level: float | None = None) -> Medium:
    """The medium that a text names, its settings behind a colon; `level` is the one that sweeps vary.

    >>> medium_named("quantise:num_bits=4,per_channel=true")
    Quantisation(num_bits=4, per_channel=True, dither=False, clip='max')
    >>> medium_named("pcm:compensate=false", level=3600)
    PCM(seconds=3600.0, compensate=False, programming=1.0, reading=1.0, drift=1.0)

    Raises:
        InvalidConfig: for an unknown name or setting, or a value that does not fit.
    """
    named, settings = _parsed(text)
    if level is not None:
        if named.level in settings:
            raise InvalidConfig(f"{text!r} sets {named.level}, which is varied here; leave it out")
        settings[named.level] = f"{level:.17g}"
    fields = {field.name: field for field in dataclasses.fields(named.make)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(named.make)
    for key in settings:
        if key not in fields:
            raise InvalidConfig(f"{text!r}: unknown setting {key!r}; {suggest(key, fields)}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in settings:
            raise InvalidConfig(f"{text!r} needs {name}; write for example {text.partition(':')[0]}:{name}=...")
    return named.make(**{key: _convert(value, hints[key], f"{text!r}: {key}") for key, value in settings.items()})


def level_of(text: str) -> str:
    """The name of the setting that a sweep over this medium varies.

    >>> level_of("pcm:compensate=false")
    'seconds'
    """
    return _parsed(text)[0].level


def effective_wnr_db(weights: Weights, noise_variance: NoiseVariance) -> float:
    """The WNR of a model whose noise differs: `Var(w)` over the mean noise variance, in decibels.

    >>> import torch
    >>> effective_wnr_db({"w": torch.tensor([-1.0, 1.0])}, {"w": 0.1})
    10.0
    """
    noise = noise_by_tensor(noise_variance, weights)
    mean = one_variance(noise_variance) if noise is None else mean_noise(noise, weights)
    return ratio_to_db(WeightStatistics.from_clean(weights.values()).variance / mean) if mean else math.inf


def _parsed(text: str) -> tuple[NamedMedium, dict[str, str]]:
    if not isinstance(text, str):
        raise InvalidConfig(f"channel is {text!r}; write a name with its settings, for example 'quantise:num_bits=4'")
    name, _, rest = text.partition(":")
    if name not in MEDIA:
        raise unknown_choice("channel", name, MEDIA)
    settings: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key.strip() in settings:
            raise InvalidConfig(f"{text!r}: {part!r} is no setting; write {name}:key=value,key=value")
        settings[key.strip()] = value.strip()
    return MEDIA[name], settings


def _convert(text: str, hint: Any, where: str) -> Any:
    """The value in the type of its field."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(f"{where} is {text!r}; write true or false")
        return text.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            try:
                number = float(text)
            except ValueError as error:
                raise InvalidConfig(f"{where} is {text!r}; give a number") from error
            if kind is int and not number.is_integer():
                raise InvalidConfig(f"{where} is {text!r}; give a whole number")
            return kind(number)
    return text
