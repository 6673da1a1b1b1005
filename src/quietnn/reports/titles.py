"""What a run is, in the words of a reader who did not start it."""

from collections.abc import Iterable, Sequence

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
}


def task_title(task: str) -> str:
    """The network and its data, by the names that papers use; an unknown task goes by its own.

    >>> task_title("cifar10/resnet20"), task_title("digits"), task_title("sst2/cnn"), task_title("mine/cnn")
    ('ResNet20 on CIFAR-10', 'Handwritten digits', 'cnn on SST-2', 'mine/cnn')
    """
    data, _, network = task.partition("/")
    if data not in _DATA:
        return task
    return (
        f"{_NETWORKS.get(network, network)} on {_DATA[data]}" if network else _DATA[data][0].upper() + _DATA[data][1:]
    )


def listed(names: Iterable[str]) -> str:
    """Names in one phrase.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "noise draw"), counted(1200, "record")
    ('one noise draw', '1,200 records')
    """
    return f"one {noun}" if number == 1 else f"{number:,} {noun}s"


def span_db(wnrs: Sequence[float]) -> str:
    """The WNRs as a range.

    >>> span_db([0.0, 12.0, 6.0]), span_db([-7.0])
    ('from 0 to 12 dB', 'at −7 dB')
    """
    low, high = (f"{end:.4g}".replace("-", "−") for end in (min(wnrs), max(wnrs)))
    return f"from {low} to {high} dB" if len(set(wnrs)) > 1 else f"at {low} dB"
