"""Where data sets and weights are looked for, and how an official archive is fetched."""

import hashlib
import os
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path

from quietnn.errors import MissingData
from quietnn.files import replacing


def resolve_data_dir(data_dir: str | Path | None = None) -> Path:
    """The argument if given, else `$QUIETNN_DATA`, else `~/.cache/quietnn`."""
    chosen = data_dir or os.environ.get("QUIETNN_DATA") or Path.home() / ".cache" / "quietnn"
    return Path(chosen).expanduser()


def missing(what: str, looked_in: list[Path], remedy: str) -> MissingData:
    """An error that lists every place that was looked in, and says how to help."""
    places = "".join(f"\n  {place}" for place in looked_in)
    return MissingData(
        f"{what} is not there. Looked for:{places}\n{remedy} "
        "Another folder is named by --data-dir (data_dir= in Python) or $QUIETNN_DATA."
    )


def first_of(what: str, places: list[Path], remedy: str, *, fits: Callable[[Path], bool] = Path.is_file) -> Path:
    """The first of these places that fits; what is not there is `missing`."""
    for place in places:
        if fits(place):
            return place
    raise missing(what, places, remedy)


def checksum(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def download(url: str, target: Path, *, md5: str, timeout_seconds: float = 20.0) -> None:
    """Write the file at `url` to `target`, or nothing at all if it cannot be reached or has another checksum."""
    with replacing(target) as partial:
        try:
            with urllib.request.urlopen(url, timeout=timeout_seconds) as response, partial.open("wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
        except OSError as error:
            raise MissingData(f"{url} could not be downloaded ({error})") from error
        found = checksum(partial, "md5")
        if found != md5:
            raise MissingData(f"{url} arrived with md5 {found}, expected {md5}; try again")
