"""The channel of a run in a reader's words: for titles, axes and their ticks. Records of white noise name none."""

from collections.abc import Iterable, Sequence

from quietnn.channels.table import CHANNELS
from quietnn.records import Record
from quietnn.reports.titles import listed

_LONGEST_SETTINGS = 40
_SPANS = ((365 * 86_400.0, "y"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def channel_title(channel: str) -> str:
    """A channel of the records in words, its settings behind it where they are short.

    >>> channel_title("pcm:compensate=false"), channel_title("fading"), channel_title("carrier pigeon")
    ('phase-change memory (compensate=false)', 'Rayleigh block fading', 'carrier pigeon')
    """
    name, _, settings = channel.partition(":")
    words = CHANNELS[name].label if name in CHANNELS else name
    shown = settings if len(settings) <= _LONGEST_SETTINGS else settings.partition(",")[0] + ",..."
    return f"{words} ({shown.replace(',', ', ')})" if settings and len(shown) <= _LONGEST_SETTINGS else words


def over_channels(task: str, records: Iterable[Record]) -> str:
    """What was measured and the channels it went through; nothing is added where all noise is the paper's.

    >>> over_channels("digits", [{"wnr_db": 3.0}]), over_channels("digits", [{"channel": "quantise"}])
    ('digits', 'digits over uniform quantisation')
    """
    found = _channels(records)
    return f"{task} over {listed(channel_title(channel) for channel in found)}" if found not in ([], ["awgn"]) else task


def wnr_axis(records: Iterable[Record]) -> str:
    """The name of the horizontal axis: a WNR, that of a link, or what a channel's noise amounts to.

    >>> wnr_axis([{"wnr_db": 3.0}]), wnr_axis([{"channel": "fading"}]), wnr_axis([{"channel": "pcm"}])
    ('WNR (dB)', 'link WNR (dB)', 'effective WNR (dB)')
    """
    names = {channel.partition(":")[0] for channel in _channels(records)}
    if names <= {"awgn"}:
        return "WNR (dB)"
    return "link WNR (dB)" if all(_level(name) == "wnr_db" for name in names) else "effective WNR (dB)"


def level_ticks(records: Sequence[Record]) -> dict[float, str]:
    """What the channel was set to at each effective WNR: bits or time; none for links.

    >>> level_ticks([{"channel": "pcm", "level": 86400.0, "wnr_db": 14.2}])
    {14.2: '1 d'}
    """
    found: dict[float, str] = {}
    for record in records:
        name, level = str(record.get("channel", "")).partition(":")[0], record.get("level")
        setting = _level(name)
        if level is not None and setting not in ("", "wnr_db"):
            found[float(record["wnr_db"])] = _shown(float(level), setting)
    return found


def _channels(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(str(record.get("channel") or "awgn") for record in records))


def _level(name: str) -> str:
    """What a channel is set by; nothing is known of one that has no row."""
    return CHANNELS[name].level if name in CHANNELS else ""


def _shown(level: float, setting: str) -> str:
    if setting == "seconds":
        return _span(level)
    unit = setting.removeprefix("num_").replace("_", " ")
    return f"{level:g} {unit if level != 1 else unit.removesuffix('s')}"


def _span(seconds: float) -> str:
    size, unit = next((span for span in _SPANS if seconds >= span[0]), _SPANS[-1])
    return f"{seconds / size:.3g} {unit}"
