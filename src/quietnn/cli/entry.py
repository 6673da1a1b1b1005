"""What the `quietnn` script calls: an interrupt at any moment, also while modules load, ends in one line."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

EXIT_CODE = 130
"""What shells expect of a command that was interrupted: 128 and the number of the signal."""


def signal_again(number: int) -> None:
    """Send this process a signal in a moment, when Python is out of the callback that swallowed it."""
    again = threading.Timer(0.05, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _a_module_loads(frame: FrameType | None) -> bool:
    """Whether an import is under way in this frame or in one that called it."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


class _Interrupts:
    """Raises once no module is loading: what is compiled in it may end the process at an exception."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if _a_module_loads(frame):
            signal_again(number)
        else:
            raise KeyboardInterrupt

    def unraisable(self, ignored: Any) -> None:
        """An interrupt that fell into a callback, where Python can only print it, comes again a moment later."""
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            signal_again(signal.SIGINT)
        else:
            sys.__unraisablehook__(ignored)


def main() -> None:
    """Run the command line; after an interrupt, say so in one line and leave with 130."""
    interrupts = _Interrupts()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be ignored
        signal.signal(signal.SIGINT, interrupts)
        sys.unraisablehook = interrupts.unraisable
    try:
        from quietnn.cli.main import main as run

        run()
    except BaseException as error:
        if signal.getsignal(signal.SIGINT) is interrupts:  # a further one ends the process without a word
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not interrupts.came:
            raise
        if not (isinstance(error, SystemExit) and error.code == 1):  # then typer has said "Aborted."
            print("interrupted; run the same command again to go on", file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None


if __name__ == "__main__":
    main()
