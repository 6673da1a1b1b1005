"""SST-2 files are read strictly."""

from pathlib import Path

import pytest

from quietnn.errors import InvalidConfig, MissingData
from quietnn.tasks.sst2 import load_sst2, read_tsv


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("1\ta film , and a good one\n0\tno\ttabs matter\x85 or breaks\n", encoding="utf-8")
    sentences = read_tsv(path)
    assert sentences.labels == (1, 0)
    assert sentences.texts[1] == "no\ttabs matter\x85 or breaks"


@pytest.mark.parametrize("line", ["label\tsentence", "2\ttext", "1 text", "1\t ", ""])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text(f"1\tfine\n{line}\n0\tfine\n")
    with pytest.raises(InvalidConfig, match=r"line 2 .*label<TAB>text"):
        read_tsv(path)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_bytes(b"1\tcr\xe8me\n")
    with pytest.raises(InvalidConfig, match=r"not UTF-8 text \(byte 4\)"):
        read_tsv(path)


def test_missing_file_and_unknown_split(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"sst2/dev\.tsv"):
        load_sst2(tmp_path, "dev")
    with pytest.raises(InvalidConfig, match="train, dev, test"):
        load_sst2(tmp_path, "valid")
