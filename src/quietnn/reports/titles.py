"""What a run and its channel are, in the words of a reader who did not start it: for titles, axes and their ticks."""

from collections.abc import Iterable, Sequence

from quietnn.channels.table import CHANNELS
from quietnn.records import Record

_DATA = {"cifar10": "CIFAR-10", "sst2": "SST-2", "digits": "handwritten digits"}
_NETWORKS = {
    "resnet18": "ResNet18",
    "resnet20": "ResNet20",
    "resnet34": "ResNet34",
    "shufflenetv2": "ShuffleNetV2",
    "shufflenetv2-x0_5": "ShuffleNetV2 x0.5",
    "minilm": "MiniLM",
    "bert": "BERT",
    "mlp": "MLP",
    "stories15m": "Stories15M",
    "smollm2": "SmolLM2",
}
_LONGEST_SETTINGS = 40
_SPANS = ((365 * 86_400.0, "y"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def task_title(task: str) -> str:
    """The network and its data, by the names that papers use; an unknown task goes by its own.

    >>> task_title("cifar10/resnet20"), task_title("lm/stories15m@stories"), task_title("mine/cnn")
    ('ResNet20 on CIFAR-10', 'Stories15M on stories', 'mine/cnn')
    """
    data, _, network = task.partition("/")
    if data == "lm" and "@" in network:
        model, _, text = network.partition("@")
        return f"{_NETWORKS.get(model, model)} on {text}"
    if data not in _DATA:
        return task
    name = _DATA[data]
    return f"{_NETWORKS.get(network, network)} on {name}" if network else name[0].upper() + name[1:]


def listed(names: Iterable[str]) -> str:
    """Names in one phrase: `a, b and c`, each once."""
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, noun: str) -> str:
    """A number with its noun: `one record`, `1,200 records`."""
    return f"one {noun}" if number == 1 else f"{number:,} {noun}s"


def span_db(wnrs: Sequence[float]) -> str:
    """The WNRs as a range: `from 0 to 12 dB`, or `at −7 dB`."""
    low, high = (f"{end:.4g}".replace("-", "−") for end in (min(wnrs), max(wnrs)))
    return f"from {low} to {high} dB" if len(set(wnrs)) > 1 else f"at {low} dB"


def duration(seconds: float) -> str:
    """A time in the one unit that matters.

    >>> duration(42.0), duration(600.0), duration(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    """What was measured and the channels it went through; white noise, which records need not name, adds nothing."""
    found = _channels(records)
    return f"{task} over {listed(channel_title(channel) for channel in found)}" if found not in ([], ["awgn"]) else task


def wnr_axis(records: Iterable[Record]) -> str:
    """The name of the horizontal axis: a WNR, that of a link, or what a channel's noise amounts to."""
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
        size, unit = next((span for span in _SPANS if level >= span[0]), _SPANS[-1])
        return f"{level / size:.3g} {unit}"
    unit = setting.removeprefix("num_").replace("_", " ")
    return f"{level:g} {unit if level != 1 else unit.removesuffix('s')}"
