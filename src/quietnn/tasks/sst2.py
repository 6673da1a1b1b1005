"""SST-2, sentences judged negative (0) or positive (1), read from `label<TAB>text` files."""

from dataclasses import dataclass
from pathlib import Path

from quietnn.errors import InvalidConfig
from quietnn.tasks.data_dir import missing

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Sentences:
    """Texts with their labels, in the order of the file."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        """How many sentences there are."""
        return len(self.labels)


def load_sst2(data_dir: Path, split: str) -> Sentences:
    """Read `<data_dir>/sst2/<split>.tsv`.

    Raises:
        MissingData: if there is no such file.
        InvalidConfig: if the split is unknown, or a line is not `label<TAB>text`, with its number.
    """
    if split not in SPLITS:
        raise InvalidConfig(f"SST-2 has the splits {', '.join(SPLITS)}, not {split!r}")
    path = data_dir / "sst2" / f"{split}.tsv"
    if not path.is_file():
        raise missing(
            f"the {split} split of SST-2",
            [path],
            "Put train.tsv, dev.tsv and test.tsv (label<TAB>text, no header) there.",
        )
    return read_tsv(path)


def read_tsv(path: Path) -> Sentences:
    """Read one sentence per line, `0<TAB>text` or `1<TAB>text`, without a header."""
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
    texts, labels = [], []
    # Only the newline ends a line: review texts contain other characters that str.splitlines breaks at.
    for number, line in enumerate(content.removesuffix("\n").split("\n"), start=1):
        label, tab, text = line.removesuffix("\r").partition("\t")
        if not tab or label not in ("0", "1") or not text.strip():
            raise InvalidConfig(
                f"{path}, line {number} is {line[:60]!r}; expected label<TAB>text with label 0 or 1, no header"
            )
        texts.append(text)
        labels.append(int(label))
    return Sentences(texts=tuple(texts), labels=tuple(labels))
