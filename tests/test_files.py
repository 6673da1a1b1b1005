"""Files that appear whole or not at all."""

from pathlib import Path

import pytest

from quietnn.files import replacing, write_whole


def test_a_file_appears_with_all_its_content_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="half way"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    with replacing(path) as beside:
        beside.write_text("half")
        raise ValueError("half way")


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "taken", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
