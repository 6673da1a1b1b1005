"""Every channel that can be named, one row each. Nothing here needs torch, so figures read their legends here too."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class NamedChannel:
    """A channel that can be asked for by name.

    Attributes:
        make: builds it from its settings: a dataclass, or where one is to be found (`"package.module:Class"`).
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
        """The dataclass itself, imported when it is first asked for."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]


_HOME = "quietnn.channels"

CHANNELS: dict[str, NamedChannel] = {
    "awgn": NamedChannel(f"{_HOME}.awgn:AWGN", "wnr_db", "white noise", 10.0),
    "quantise": NamedChannel(f"{_HOME}.quantisation:Quantisation", "num_bits", "uniform quantisation", 3),
    "truncate": NamedChannel(f"{_HOME}.truncation:MantissaTruncation", "num_bits", "mantissa truncation", 3),
    "pcm": NamedChannel(f"{_HOME}.pcm:PCM", "seconds", "phase-change memory", 1.0),
    "reram": NamedChannel(f"{_HOME}.reram:ReRAM", "seconds", "resistive memory", 1.0),
    "fading": NamedChannel(f"{_HOME}.fading:BlockFading", "wnr_db", "Rayleigh block fading", 10.0),
    "protected": NamedChannel(f"{_HOME}.protected:Protected", "wnr_db", "white noise with repetition", 10.0),
    "digital": NamedChannel(f"{_HOME}.digital:CodedDigital", "wnr_db", "digital code at capacity", 10.0),
    "aihwkit": NamedChannel(f"{_HOME}.aihwkit_memory:AihwkitMemory", "seconds", "memory by aihwkit", 1.0, "aihwkit"),
    "sionna": NamedChannel(f"{_HOME}.sionna_radio:SionnaRadio", "wnr_db", "OFDM by Sionna", 10.0, "sionna"),
}
"""Every channel that a configuration, a command or `transmit(channel=...)` can name. A new one is a file and a row."""
