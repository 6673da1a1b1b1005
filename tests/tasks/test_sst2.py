"""SST-2: files are read strictly, and a tiny transformers classifier is loaded and scored."""

import sys
from pathlib import Path

import pytest
import torch

from quietnn.errors import InvalidConfig, InvalidWeights, MissingData
from quietnn.tasks.sst2 import (
    by_length,
    evaluate_encoder,
    find_classifier,
    lengths,
    load_classifier,
    load_sst2,
    read_tsv,
    tokenise,
)

GOOD, BAD = "a fine warm film", "dull"


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("1\ta film , and a good one\n0\tno\ttabs matter\x85 or breaks\n", encoding="utf-8")
    texts, labels = read_tsv(path)
    assert labels == [1, 0]
    assert texts[1] == "no\ttabs matter\x85 or breaks"


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


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"sst2/dev\.tsv"):
        load_sst2(tmp_path, "dev")


def test_padding_does_not_change_the_score(sst2_dir: Path) -> None:
    examples = tokenise([GOOD, BAD, BAD, GOOD], [1, 0, 1, 0], sst2_dir / "tiny")
    torch.manual_seed(0)
    model = load_classifier(sst2_dir / "tiny", new_head=True)
    together, apart = (evaluate_encoder(model, examples, batch_size=size) for size in (4, 1))
    assert together.loss == pytest.approx(apart.loss, rel=1e-5)
    assert together.accuracy == apart.accuracy == 0.5
    assert lengths(by_length(examples)).tolist() == [3, 3, 6, 6]


def test_a_bare_encoder_is_no_classifier(sst2_dir: Path) -> None:
    with pytest.raises(MissingData, match="quietnn train sst2/tiny"):
        find_classifier("tiny", data_dir=sst2_dir)
    with pytest.raises(InvalidWeights, match="without a sequence classifier"):
        find_classifier("tiny", data_dir=sst2_dir, weights=sst2_dir / "tiny")


def test_a_classifier_whose_tensors_do_not_fit_names_them(sst2_dir: Path) -> None:
    with pytest.raises(InvalidWeights, match=r"missing: classifier.bias, classifier.weight"):
        load_classifier(sst2_dir / "tiny")
    (sst2_dir / "tiny" / "config.json").write_text("{")
    with pytest.raises(InvalidWeights, match="not a model's configuration"):
        find_classifier("tiny", data_dir=sst2_dir, weights=sst2_dir / "tiny")


def test_without_transformers_the_extra_is_named(sst2_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingData, match=r"pip install 'quietnn\[hf\]'"):
        load_classifier(sst2_dir / "tiny")
