"""SST-2, sentences judged negative (0) or positive (1), with classifiers in transformers layout.

Sentences are read from `label<TAB>text` files, tokenised once, and scored in batches of similar length.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from quietnn.batches import outputs_of
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.score import Score
from quietnn.tasks.base import Examples, Task, score_batches
from quietnn.tasks.data_dir import first_of
from quietnn.tasks.transformers_folder import load_model, load_tokenizer, read_config, transformers_package

MAX_TOKENS = 128
"""Longer sentences are cut; the longest of SST-2 has about 70 tokens."""


def load_sst2(data_dir: Path, split: str) -> tuple[list[str], list[int]]:
    """The texts of `<data_dir>/sst2/<split>.tsv` and their labels."""
    remedy = "Put train.tsv, dev.tsv and test.tsv (label<TAB>text, no header) there."
    return read_tsv(first_of(f"the {split} split of SST-2", [data_dir / "sst2" / f"{split}.tsv"], remedy))


def read_tsv(path: Path) -> tuple[list[str], list[int]]:
    """Read one sentence per line, `0<TAB>text` or `1<TAB>text`, without a header: the texts and their labels."""
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
    return texts, labels


def sst2_task(encoder: str, *, data_dir: Path, weights: Path | None = None) -> Task:
    """SST-2 with a fine-tuned classifier in transformers layout; tuned on dev, tested on test."""
    folder = find_classifier(encoder, data_dir=data_dir, weights=weights)

    @cache
    def split(name: str) -> Examples:
        return tokenise(*load_sst2(data_dir, name), folder)

    def tuning_examples(num_examples: int, seed: int) -> Examples:
        return by_length(split("dev").sample(num_examples, seed=seed))

    def test_examples(num_examples: int | None, first: int = 0) -> Examples:
        return by_length(split("test").sample(num_examples, first=first))

    return Task(
        name=f"sst2/{encoder}",
        load_model=lambda: load_classifier(folder),
        tuning_examples=tuning_examples,
        test_examples=test_examples,
        evaluate=evaluate_encoder,
        run=run_sentences,
    )


def find_classifier(encoder: str, *, data_dir: Path, weights: Path | None = None) -> Path:
    """The folder of a fine-tuned classifier: `weights`, `<data_dir>/sst2-<encoder>`, or a path."""
    places = [weights] if weights else [data_dir / f"sst2-{Path(encoder).name}", data_dir / encoder, Path(encoder)]
    configs = [place / "config.json" for place in places]
    if weights is not None and configs[0].is_file() and not _is_classifier(configs[0]):
        raise InvalidWeights(
            f"{weights} holds an encoder without a sequence classifier; fine-tune it with: quietnn train sst2/{encoder}"
        )
    remedy = f"Make one with: quietnn train sst2/{encoder}, or name a folder in transformers layout."
    return first_of(f"a classifier fine-tuned on SST-2 called {encoder!r}", configs, remedy, fits=_is_classifier).parent


def find_encoder(encoder: str, *, data_dir: Path) -> Path:
    """The folder of a pretrained encoder to fine-tune: `<data_dir>/<encoder>` or a path."""
    configs = [data_dir / encoder / "config.json", Path(encoder) / "config.json"]
    remedy = "Put its folder in transformers layout (config, weights, tokenizer) there."
    return first_of(f"a pretrained encoder called {encoder!r}", configs, remedy).parent


def _is_classifier(config: Path) -> bool:
    architectures = read_config(config.parent).get("architectures") if config.is_file() else None
    return any("SequenceClassification" in str(name) for name in architectures or [])


def load_classifier(folder: Path, *, new_head: bool = False) -> nn.Module:
    """A two-class sequence classifier; with `new_head` an encoder that is to be fine-tuned into one."""
    kind = transformers_package("SST-2").AutoModelForSequenceClassification
    return load_model(kind, folder, "a two-class sequence classifier", new_head=new_head, num_labels=2)


def tokenise(texts: list[str], labels: list[int], folder: Path) -> Examples:
    """All sentences as padded token tensors (num_sentences, longest)."""
    encoded = load_tokenizer(folder, "SST-2")(
        texts, padding="longest", truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
    )
    return Examples(inputs=dict(encoded), labels=torch.tensor(labels))


def lengths(examples: Examples) -> Tensor:
    """Number of tokens of each example that are not padding."""
    if not isinstance(examples.inputs, dict) or "attention_mask" not in examples.inputs:
        raise InvalidConfig("expected tokenised examples with an attention_mask")
    return examples.inputs["attention_mask"].sum(dim=1)


def by_length(examples: Examples) -> Examples:
    """The same examples, shortest first, so that neighbours need little padding."""
    return examples.take(lengths(examples).argsort(stable=True))


def trim(examples: Examples) -> Examples:
    """The same examples without the columns that are padding for all of them."""
    longest = int(lengths(examples).max())
    return Examples(
        inputs={name: tensor[:, :longest] for name, tensor in dict(examples.inputs).items()}, labels=examples.labels
    )


def evaluate_encoder(model: nn.Module, examples: Examples, *, batch_size: int = 64) -> Score:
    """Accuracy and mean cross-entropy, each batch padded to its own longest sentence only."""
    return score_batches(model, (trim(batch) for batch in by_length(examples).batches(batch_size)))


_CHUNK = 25
"""Sentences that go through an encoder at once while it is fitted."""


def run_sentences(network: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """The logits of sentences in their own order, run in chunks of similar length without needless padding."""
    everything = Examples(inputs, torch.zeros(len(inputs["attention_mask"]), dtype=torch.int64))
    order = lengths(everything).argsort(stable=True)
    chunks = [trim(everything.take(positions)) for positions in torch.split(order, _CHUNK)]
    return torch.cat([outputs_of(network, chunk.inputs) for chunk in chunks])[order.argsort()]
