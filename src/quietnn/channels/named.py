"""Channels by name, for configurations and the command line: `"pcm:compensate=false"`, `"quantise:num_bits=4"`."""

import dataclasses
import math
import typing
from importlib.metadata import entry_points
from typing import Any

from quietnn.channels.base import Channel
from quietnn.channels.table import CHANNELS, NamedChannel
from quietnn.errors import InvalidConfig, suggest, unknown_choice
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, mean_noise, noise_by_tensor, one_variance
from quietnn.units import ratio_to_db
from quietnn.weights import Weights


def channel_named(text: str, level: float | None = None) -> Channel:
    """The channel that a text names, its settings behind a colon; `level` is the one that sweeps vary.

    >>> channel_named("quantise:num_bits=4,per_channel=true")
    Quantisation(num_bits=4, per_channel=True, dither=False, clip='max')
    >>> channel_named("pcm:compensate=false", level=3600)
    PCM(seconds=3600.0, compensate=False, programming=1.0, reading=1.0, drift=1.0)

    Raises:
        InvalidConfig: for an unknown name or setting, or a value that does not fit.
    """
    named, settings = _parsed(text)
    make = named.kind
    if level is not None:
        if named.level in settings:
            raise InvalidConfig(f"{text!r} sets {named.level}, which is varied here; leave it out")
        settings[named.level] = f"{level:.17g}"
    fields = {field.name: field for field in dataclasses.fields(make)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(make)
    for key in settings:
        if key not in fields:
            raise InvalidConfig(f"{text!r}: unknown setting {key!r}; {suggest(key, fields)}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in settings:
            value = f"{named.example:g}" if name == named.level else "..."
            raise InvalidConfig(f"{text!r} needs {name}; write for example {text.partition(':')[0]}:{name}={value}")
    channel: Channel = make(**{key: _convert(value, hints[key], f"{text!r}: {key}") for key, value in settings.items()})
    return channel


def level_of(text: str) -> str:
    """The name of the setting that a sweep over this channel varies.

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


def _parsed(text: str) -> tuple[NamedChannel, dict[str, str]]:
    if not isinstance(text, str):
        raise InvalidConfig(f"channel is {text!r}; write a name with its settings, for example 'quantise:num_bits=4'")
    name, _, rest = text.partition(":")
    if name not in CHANNELS:
        for plugin in entry_points(group="quietnn.channels"):
            plugin.load()  # a module that adds its rows
    if name not in CHANNELS:
        raise unknown_choice("channel", name, CHANNELS)
    settings: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key.strip() in settings:
            raise InvalidConfig(f"{text!r}: {part!r} is no setting; write {name}:key=value,key=value")
        settings[key.strip()] = value.strip()
    return CHANNELS[name], settings


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
