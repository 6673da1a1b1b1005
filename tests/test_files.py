"""Files that appear whole or not at all."""

import multiprocessing
import os
import resource
import sys
from pathlib import Path

import pytest

from quietnn.errors import QuietnnError
from quietnn.files import replacing, write_together, write_whole


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
    with pytest.raises(QuietnnError, match="Is a directory; nothing was left behind"):
        write_whole(tmp_path / "taken", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_bears_the_name_of_the_partial_file_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who can write into the folder foresees the name and puts a link to another file there."""
    monkeypatch.setattr("quietnn.files.secrets.randbelow", lambda limit: 0)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for number in ("", "000000000"):
        (tmp_path / f".a.txt.{os.getpid()}{number}.tmp").symlink_to(mine)
        (tmp_path / f".a.txt.{os.getpid()}{number}.part").symlink_to(mine)
    with pytest.raises(QuietnnError, match="cannot write"):
        write_whole(tmp_path / "a.txt", b"text")
    assert mine.read_text() == "precious"


def test_the_name_of_the_partial_file_cannot_be_foreseen(tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "a.txt") as partial:
            names.add(partial.name)
    assert len(names) == 3


def test_content_and_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    write_whole(tmp_path / "a.txt", b"text")
    assert synced[0].name.startswith(".a.txt.")
    assert synced[-1] == tmp_path


def write_on_a_full_disk(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write_together(folder, {"a.txt": b"new", "b.txt": b"b" * 2000})
    except QuietnnError as error:
        sys.exit(3 if "File too large" in str(error) else 4)


@pytest.mark.parametrize("there", [True, False])
def test_files_that_go_together_appear_together_or_not_at_all(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "new" / "run"
    if there:
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("old")
    process = multiprocessing.get_context("spawn").Process(target=write_on_a_full_disk, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == 3
    assert [path.name for path in folder.iterdir()] == ["a.txt"] if there else not (tmp_path / "new").exists()
    assert not there or (folder / "a.txt").read_text() == "old"
