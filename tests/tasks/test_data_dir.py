"""Where data lies, and what is fetched: whole, or not at all."""

import hashlib
from pathlib import Path

import pytest

from quietnn.errors import MissingData
from quietnn.tasks.data_dir import checksum, download, missing, resolve_data_dir


def test_data_dir_argument_then_environment_then_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIETNN_DATA", "/somewhere")
    assert resolve_data_dir("/given") == Path("/given")
    assert resolve_data_dir() == Path("/somewhere")
    monkeypatch.delenv("QUIETNN_DATA")
    assert resolve_data_dir() == Path.home() / ".cache" / "quietnn"


def test_what_is_missing_lists_every_place_and_the_remedy() -> None:
    error = missing("a file", [Path("/a"), Path("/b")], "Fetch it.")
    assert "Looked for:\n  /a\n  /b\nFetch it." in str(error)
    assert "--data-dir" in str(error)


def test_a_download_is_checked_before_it_appears(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    source.write_bytes(b"content")
    with pytest.raises(MissingData, match="expected 0000"):
        download(source.as_uri(), target, md5="0000")
    assert not target.parent.exists()
    download(source.as_uri(), target, md5=hashlib.md5(b"content").hexdigest())
    assert checksum(target, "sha256") == hashlib.sha256(b"content").hexdigest()
    with pytest.raises(MissingData, match="could not be downloaded"):
        download((tmp_path / "nothing").as_uri(), target, md5="")
