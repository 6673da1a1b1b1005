"""The medium of a run in a reader's words: for titles, axes and their ticks. Records of white noise name none."""

from collections.abc import Iterable, Sequence

from quietnn.records import Record
from quietnn.reports.titles import listed

WHITE = "white noise"

_WORDS = {
    "awgn": WHITE,
    "quantise": "uniform quantisation",
    "truncate": "mantissa truncation",
    "pcm": "phase-change memory",
    "reram": "resistive memory",
    "fading": "Rayleigh block fading",
    "protected": "white noise with repetition",
    "digital": "digital code at capacity",
    "aihwkit": "memory by aihwkit",
    "sionna": "OFDM by Sionna",
}
_LINKS = ("awgn", "fading", "protected", "digital", "sionna")
_BITS = ("quantise", "truncate")
_MEMORIES = ("pcm", "reram", "aihwkit")
_LONGEST_SETTINGS = 40
_SPANS = ((365 * 86_400.0, "y"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def medium_title(channel: str) -> str:
    """A channel of the records in words, its settings behind it where they are short.

    >>> medium_title("pcm:compensate=false"), medium_title("fading"), medium_title("carrier pigeon")
    ('phase-change memory (compensate=false)', 'Rayleigh block fading', 'carrier pigeon')
    """
    name, _, settings = channel.partition(":")
    words = _WORDS.get(name, name)
    shown = settings if len(settings) <= _LONGEST_SETTINGS else settings.partition(",")[0] + ",..."
    return f"{words} ({shown.replace(',', ', ')})" if settings and len(shown) <= _LONGEST_SETTINGS else words


def over_media(task: str, records: Iterable[Record]) -> str:
    """What was measured and the media it went through; nothing is added where all noise is the paper's.

    >>> over_media("digits", [{"wnr_db": 3.0}]), over_media("digits", [{"channel": "quantise"}])
    ('digits', 'digits over uniform quantisation')
    """
    found = _channels(records)
    return f"{task} over {listed(medium_title(channel) for channel in found)}" if found not in ([], ["awgn"]) else task


def wnr_axis(records: Iterable[Record]) -> str:
    """The name of the horizontal axis: a WNR, that of a link, or what a medium's noise amounts to.

    >>> wnr_axis([{"wnr_db": 3.0}]), wnr_axis([{"channel": "fading"}]), wnr_axis([{"channel": "pcm"}])
    ('WNR (dB)', 'link WNR (dB)', 'effective WNR (dB)')
    """
    names = {channel.partition(":")[0] for channel in _channels(records)}
    if names <= {"awgn"}:
        return "WNR (dB)"
    return "link WNR (dB)" if names <= set(_LINKS) else "effective WNR (dB)"


def level_ticks(records: Sequence[Record]) -> dict[float, str]:
    """What the medium was set to at each effective WNR: bits or time; none for links.

    >>> level_ticks([{"channel": "pcm", "level": 86400.0, "wnr_db": 14.2}])
    {14.2: '1 d'}
    """
    found: dict[float, str] = {}
    for record in records:
        name, level = str(record.get("channel", "")).partition(":")[0], record.get("level")
        if level is not None and name in _BITS:
            found[float(record["wnr_db"])] = f"{level:g} bits" if level != 1 else "1 bit"
        elif level is not None and name in _MEMORIES:
            found[float(record["wnr_db"])] = _span(float(level))
    return found


def _channels(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(str(record.get("channel") or "awgn") for record in records))


def _span(seconds: float) -> str:
    size, unit = next((span for span in _SPANS if seconds >= span[0]), _SPANS[-1])
    return f"{seconds / size:.3g} {unit}"
