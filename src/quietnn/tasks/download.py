"""Fetch an official archive: checked before it appears under its name."""

import hashlib
import shutil
import urllib.request
from pathlib import Path

from quietnn.errors import MissingData
from quietnn.files import replacing


def checksum(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def download(url: str, target: Path, *, md5: str, timeout_seconds: float = 20.0) -> None:
    """Write the file at `url` to `target`, or nothing at all.

    Raises:
        MissingData: if it cannot be reached, or what arrives has another checksum.
    """
    with replacing(target) as partial:
        try:
            with urllib.request.urlopen(url, timeout=timeout_seconds) as response, partial.open("wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
        except OSError as error:
            raise MissingData(f"{url} could not be downloaded ({error})") from error
        found = checksum(partial, "md5")
        if found != md5:
            raise MissingData(f"{url} arrived with md5 {found}, expected {md5}; try again")
