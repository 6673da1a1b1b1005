"""Where data sets and weights are looked for."""

import os
from pathlib import Path

from quietnn.errors import MissingData


def resolve_data_dir(data_dir: str | Path | None = None) -> Path:
    """The argument if given, else `$QUIETNN_DATA`, else `~/.cache/quietnn`.

    >>> resolve_data_dir("/data").as_posix()
    '/data'
    """
    chosen = data_dir or os.environ.get("QUIETNN_DATA") or Path.home() / ".cache" / "quietnn"
    return Path(chosen).expanduser()


def missing(what: str, looked_in: list[Path], remedy: str) -> MissingData:
    """An error that lists every place that was looked in, and says how to help."""
    places = "".join(f"\n  {place}" for place in looked_in)
    return MissingData(
        f"{what} is not there. Looked for:{places}\n{remedy} "
        "Another folder is named by --data-dir (data_dir= in Python) or $QUIETNN_DATA."
    )
