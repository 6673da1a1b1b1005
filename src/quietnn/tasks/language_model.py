"""Language models in transformers layout on plain text: windows of tokens, next-token loss, perplexity.

Text is its own label: the label of every token is the next one. Documents are files, or the parts of a file between
lines that hold a marker. A window never crosses from one document into the next. Its first token is predicted from
nothing and does not count, nor does padding.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from quietnn.batches import in_evaluation, outputs_of
from quietnn.errors import InvalidConfig, MissingData
from quietnn.score import Score
from quietnn.tasks.base import Examples, Task
from quietnn.tasks.data_dir import first_of
from quietnn.tasks.token_losses import IGNORED as IGNORED
from quietnn.tasks.token_losses import token_losses
from quietnn.tasks.transformers_folder import load_language_model, load_tokenizer, read_config

LONGEST_WINDOW = 512
"""Tokens of a window where the model could take more: a window's logits are held at once."""

_LOGITS_AT_ONCE = 2**25
"""Numbers that logits may take at once, 128 MB in float32; windows run together as far as that goes."""


def language_model(
    folder: str | Path,
    *,
    tuning: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    weights: str | Path | None = None,
    window: int | None = None,
    marker: str | None = None,
    name: str | None = None,
) -> Task:
    """A causal language model, or an encoder-decoder, with text to tune and to test on.

    An example is a window of tokens. An encoder-decoder reads the first half of it and predicts the second.

    Args:
        folder: config, weights and tokenizer in transformers layout.
        tuning: text files to repair by; a folder stands for the .txt files in it.
        test: text files to test on.
        weights: another folder that holds the weights; the same network and tokenizer.
        window: tokens of a window; the model's own length when not given, at most 512.
        marker: a line that ends a document, for example `<|endoftext|>`; blank lines do not. A file is one without it.
        name: what records call the task; `lm/` and the folder's name when not given.

    Raises:
        MissingData: if a folder, a tokenizer or a text is not there.
        InvalidConfig: if a text is not text or shorter than a window, or tokens do not fit the vocabulary.
        InvalidWeights: if the weights do not fit their configuration.
    """
    place = Path(folder).expanduser()
    if not (place / "config.json").is_file():
        raise MissingData(f"there is no {place / 'config.json'}; name a folder in transformers layout")
    shape = _Shape.of(place, window)

    @cache
    def windows(split: str) -> Examples:
        files = {"tuning": tuning, "test": test}[split]
        if files is None:
            raise MissingData(
                f"there is no text for {split}; give language_model({str(folder)!r}, {split}='notes.txt')"
            )
        return read_windows(place, files, shape, marker=marker)

    def tuning_examples(num_examples: int, seed: int) -> Examples:
        known = windows("tuning")
        return known.sample(min(num_examples, len(known)), seed=seed)

    def test_examples(num_examples: int | None, first: int = 0) -> Examples:
        return windows("test").sample(num_examples, first=first)

    return Task(
        name=name or f"lm/{place.name}",
        load_model=partial(load_language_model, place if weights is None else Path(weights).expanduser()),
        tuning_examples=tuning_examples,
        test_examples=test_examples,
        evaluate=partial(evaluate_tokens, batch_size=shape.batch_size),
        loss=next_token_loss,
        batch_size=shape.batch_size,
    )


def named_language_model(member: str, *, data_dir: Path, weights: Path | None = None) -> Task:
    """`lm/<folder>@<texts>`: a folder of the data folder, or a path, and a folder with tuning.txt and test.txt.

    Without `@<texts>` the texts lie in the model's folder.
    """
    folder, _, texts = member.partition("@")
    places = {which: _found(which, data_dir) for which in dict.fromkeys((folder, texts or folder))}
    text = places[texts or folder]
    return language_model(
        places[folder], tuning=text / "tuning.txt", test=text / "test.txt", weights=weights, name=f"lm/{member}"
    )


def _found(which: str, data_dir: Path) -> Path:
    remedy = "Put it there, or name another: lm/<model folder>@<text folder>."
    places = [data_dir / which, Path(which).expanduser()]
    return first_of(f"a folder called {which!r}", places, remedy, fits=Path.is_dir)


@dataclass(frozen=True)
class _Shape:
    """What a model's configuration says of the windows that fit it."""

    window: int
    vocabulary: int
    encodes: bool
    start: int

    @classmethod
    def of(cls, folder: Path, window: int | None) -> "_Shape":
        config = read_config(folder)
        if isinstance(text := config.get("text_config"), dict):  # of a model that takes images as well
            config = {**text, **config}
        longest = next((int(n) for n in map(config.get, _LENGTHS) if isinstance(n, int) and n > 1), LONGEST_WINDOW)
        if window is None:
            window = min(longest, LONGEST_WINDOW)
        elif not 2 <= window <= longest:
            raise InvalidConfig(f"window is {window}; {folder} takes 2 to {longest} tokens: window={min(longest, 256)}")
        vocabulary = config.get("vocab_size")
        if not isinstance(vocabulary, int) or vocabulary < 2:
            raise InvalidConfig(f"{folder / 'config.json'} tells no vocab_size; this is no language model")
        start = config.get("decoder_start_token_id", config.get("pad_token_id"))
        return cls(window, vocabulary, bool(config.get("is_encoder_decoder")), start if isinstance(start, int) else 0)

    @property
    def batch_size(self) -> int:
        """How many windows run at once."""
        return max(_LOGITS_AT_ONCE // (self.window * self.vocabulary), 1)


_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")


def read_windows(
    folder: Path, files: str | Path | Sequence[str | Path], shape: "_Shape", *, marker: str | None = None
) -> Examples:
    """The windows of some text files, in their order: token numbers, a mask, and the next tokens as labels."""
    paths = _text_files([files] if isinstance(files, str | Path) else files)
    documents = [part for path in paths for part in _documents(path, marker)]
    tokenizer = load_tokenizer(folder, "a language model")
    tokens: list[list[int]] = [tokenizer(document, verbose=False)["input_ids"] for document in documents]
    largest = max((max(one) for one in tokens if one), default=0)
    if largest >= shape.vocabulary:
        raise InvalidConfig(
            f"the tokenizer of {folder} makes token {largest}, and the model's vocabulary ends at "
            f"{shape.vocabulary - 1}; use the tokenizer that the model was trained with"
        )
    parts = [one[start : start + shape.window] for one in tokens for start in range(0, len(one), shape.window)]
    parts = [part for part in parts if len(part) > 1]  # one token alone predicts nothing
    longest = max(map(len, tokens), default=0)
    if longest < shape.window:
        shorter = max(longest // _HELD_OUT, 2)
        remedy = f"give more text, or a shorter window: --window {shorter} (window={shorter} in Python)"
        raise InvalidConfig(
            f"the longest document of {', '.join(map(str, paths))} has {longest} tokens, and a window has "
            f"{shape.window}; {remedy if longest > _HELD_OUT else 'give more text'}"
        )
    return _windows(parts, shape)


def _text_files(files: Iterable[str | Path]) -> list[Path]:
    found: list[Path] = []
    for one in map(Path, files):
        path = one.expanduser()
        found += sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not path.exists() or (path.is_dir() and not found):
            raise MissingData(f"there is no text at {path}; name a text file, or a folder of .txt files")
    return found


def _documents(path: Path, marker: str | None) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
    except OSError as error:
        raise MissingData(f"cannot read {path}: {error.strerror}") from error
    if "\0" in text:
        raise InvalidConfig(f"{path} holds zero bytes, so it is not text; give a text file")
    lines: list[list[str]] = [[]]
    for line in text.replace("\r\n", "\n").split("\n"):
        if marker is not None and line.strip() == marker:
            lines.append([])
        else:
            lines[-1].append(line)
    return [document for part in lines if (document := "\n".join(part).strip())]


def _windows(parts: Sequence[Sequence[int]], shape: _Shape) -> Examples:
    width = max(map(len, parts))
    tokens, mask = torch.zeros(len(parts), width, dtype=torch.int64), torch.zeros(len(parts), width, dtype=torch.int64)
    for row, part in enumerate(parts):
        tokens[row, : len(part)] = torch.tensor(part)
        mask[row, : len(part)] = 1
    if not shape.encodes:
        labels = torch.full_like(tokens, IGNORED)
        labels[:, :-1] = tokens[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORED)
        return Examples({"input_ids": tokens, "attention_mask": mask}, labels)
    half = width // 2
    labels = tokens[:, half:].masked_fill(mask[:, half:] == 0, IGNORED)
    begun = torch.cat([torch.full((len(parts), 1), shape.start), tokens[:, half:-1]], dim=1)
    return Examples(
        {"input_ids": tokens[:, :half], "attention_mask": mask[:, :half], "decoder_input_ids": begun}, labels
    )


_HELD_OUT = 5
"""One window of so many is held out."""


def split_windows(examples: Examples) -> tuple[Examples, Examples]:
    """Windows to repair by, and the last fifth of them to tell what the repair is worth."""
    if len(examples) < _HELD_OUT:
        raise InvalidConfig(
            f"the text makes {len(examples)} windows, and {_HELD_OUT} are needed to hold one out; give more text, or "
            f"shorter windows: --window {max(num_tokens(examples.labels) // _HELD_OUT, 2)}"
        )
    num_known = len(examples) - len(examples) // _HELD_OUT
    return examples.take(slice(num_known)), examples.take(slice(num_known, None))


def next_token_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses of a window's tokens, in nats: what a window says of the weights is all of its tokens.

    >>> next_token_loss(torch.zeros(1, 3, 4), torch.tensor([[2, 1, IGNORED]])) / 2        # log 4 a token
    tensor([1.3863])
    """
    return token_losses(outputs.flatten(0, 1), labels.flatten()).view(labels.shape).sum(1)


def num_tokens(labels: Tensor) -> int:
    """How many tokens count."""
    return int((labels != IGNORED).sum())


def evaluate_tokens(model: nn.Module, examples: Examples, *, batch_size: int = 1) -> Score:
    """Perplexity, and the mean loss of a token; `num_examples` is the number of tokens."""
    total, count = 0.0, 0
    with in_evaluation(model):
        for batch in examples.batches(batch_size):
            losses = next_token_loss(outputs_of(model, batch.inputs), batch.labels)
            total += float(losses.double().sum())
            count += num_tokens(batch.labels)
    if not count:
        raise InvalidConfig("no token counts: all are padding; give windows of two tokens or more")
    loss = math.inf if math.isnan(total) else total / count
    return Score(accuracy=None, loss=loss, num_examples=count, value=perplexity(loss))


def perplexity(loss: float) -> float:
    """`exp` of the mean loss; infinite where that is more than a float holds.

    >>> round(perplexity(math.log(20.0)), 6), perplexity(1e6)
    (20.0, inf)
    """
    return math.exp(loss) if loss < math.log(torch.finfo(torch.float64).max) else math.inf


def generate(model: nn.Module, folder: str | Path, prompt: str, *, num_tokens: int = 40) -> str:
    """What a causal model most likely writes after a prompt, with the tokenizer of its folder."""
    tokenizer = load_tokenizer(Path(folder).expanduser(), "a language model")
    tokens = torch.tensor([tokenizer(prompt)["input_ids"]])
    with torch.no_grad():
        for _ in range(num_tokens):
            best = outputs_of(model, {"input_ids": tokens})[:, -1].argmax(dim=1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
    return " ".join(tokenizer.decode(tokens[0], skip_special_tokens=True).split())
