"""A command that is told to stop ends as one that is interrupted does, with nothing left behind."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exit, so that what was begun is removed; those that are ignored stay ignored."""
    names = ("SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _stop(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
