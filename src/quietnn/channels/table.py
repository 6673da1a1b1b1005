"""Every channel that can be named, one row each, and channels by name: `"pcm:compensate=false"`.

Nothing here needs torch, so figures read their legends here too.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from quietnn.errors import InvalidConfig, suggest, unknown_choice

if TYPE_CHECKING:
    from quietnn.channels.base import Channel


@dataclass(frozen=True)
class NamedChannel:
    """A channel that can be asked for by name.

    Attributes:
        make: builds it from its settings: a dataclass or function, or where to find it (`"package.module:Class"`).
        level: the setting that a sweep varies. Levels in `wnr_db` are those of a link, `num_bits` and `seconds` are
            marked on the axis; so is any other, by its own name.
        label: what figures and tables call it.
        example: a level at which it does some harm, for messages and tests.
        package: what must be installed for it, beside quietnn.
    """

    make: Callable[..., Any] | str
    level: str
    label: str
    example: float
    package: str = ""

    @property
    def kind(self) -> Callable[..., Any]:
        """What builds it, imported when it is first asked for."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]


_HOME = "quietnn.channels"

CHANNELS: dict[str, NamedChannel] = {
    "awgn": NamedChannel(f"{_HOME}.awgn:AWGN", "wnr_db", "white noise", 10.0),
    "quantise": NamedChannel(f"{_HOME}.quantisation:Quantisation", "num_bits", "uniform quantisation", 3),
    "truncate": NamedChannel(f"{_HOME}.quantisation:MantissaTruncation", "num_bits", "mantissa truncation", 3),
    "pcm": NamedChannel(f"{_HOME}.memories:PCM", "seconds", "phase-change memory", 1.0),
    "reram": NamedChannel(f"{_HOME}.memories:ReRAM", "seconds", "resistive memory", 1.0),
    "relative": NamedChannel(f"{_HOME}.relative:RelativeNoise", "fraction", "noise relative to each row", 0.05),
    "fading": NamedChannel(f"{_HOME}.radio:BlockFading", "wnr_db", "Rayleigh block fading", 10.0),
    "protected": NamedChannel(f"{_HOME}.repetition:protected", "wnr_db", "white noise with repetition", 10.0),
    "digital": NamedChannel(f"{_HOME}.digital:CodedDigital", "wnr_db", "digital code at capacity", 10.0),
    "aihwkit": NamedChannel(f"{_HOME}.aihwkit_memory:AihwkitMemory", "seconds", "memory by aihwkit", 1.0, "aihwkit"),
    "sionna": NamedChannel(f"{_HOME}.sionna_radio:SionnaRadio", "wnr_db", "OFDM by Sionna", 10.0, "sionna"),
}
"""Every channel that a configuration, a command or `transmit(channel=...)` can name. A new one is a file and a row."""


def channel_named(text: str, level: float | None = None) -> "Channel":
    """The channel that a text names, with settings after a colon. `level` is the setting that sweeps vary.

    >>> channel_named("quantise:num_bits=4,per_channel=true")
    Quantisation(num_bits=4, per_channel=True, dither=False, clip='max')
    >>> channel_named("pcm:compensate=false", level=3600)
    PCM(seconds=3600.0, compensate=False, programming=1.0, reading=1.0, drift=1.0, tile=0)

    Raises:
        InvalidConfig: for an unknown name or setting, or a value that does not fit.
    """
    named, settings = _parsed(text)
    make = named.kind
    if level is not None:
        if named.level in settings:
            raise InvalidConfig(f"{text!r} sets {named.level}, which is varied here; leave it out")
        settings[named.level] = f"{level:.17g}"
    fields, hints = inspect.signature(make).parameters, typing.get_type_hints(make)
    for key in settings:
        if key not in fields:
            raise InvalidConfig(f"{text!r}: unknown setting {key!r}; {suggest(key, fields)}")
    for name, field in fields.items():
        if field.default is field.empty and name not in settings:
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
