"""Every Python and shell block of docs/ runs as printed; tests/test_readme.py does so for the README."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import typer
from tests.pages import ROOT, RUN, blocks, documents, pages, run_page
from tests.small_language_models import story, write_language_model

from quietnn.cli.main import app
from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.noisy_training import NoisyTraining

MOST_COLUMNS = 100
"""Of a line of code: the site shows no more of it without scrolling."""

ALL = [path.relative_to(ROOT).as_posix() for path in documents()]
SLOW = [page for page in pages() if any(block.slow for block in blocks((ROOT / page).read_text(encoding="utf-8")))]


def language_model(folder: Path) -> None:
    write_language_model(folder / "clean-model", "llama")
    (folder / "notes.txt").write_text(story(150, seed=1))


def encoder(folder: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *["the", "film", "was", "good", "bad", "a", "story"]]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), **sizes))
    model.save_pretrained(folder / "clean-model")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "clean-model")


def records(folder: Path) -> None:
    shutil.copytree(ROOT / "results" / "digits", folder / "run")


def examples(folder: Path) -> None:
    shutil.copy(ROOT / "examples" / "bring_your_own_model.py", folder)


NEEDED: dict[str, Callable[[Path], None]] = {
    "docs/guides/hugging-face.md": encoder,
    "docs/guides/language-models.md": language_model,
    "docs/guides/own-model.md": examples,
    "docs/guides/reports.md": records,
}
"""What a page takes for granted: the files that a reader has."""


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, with_slow: bool) -> None:
    monkeypatch.chdir(folder)
    NEEDED.get(page, lambda _: None)(folder)
    with torch.random.fork_rng():
        run_page(page, folder, with_slow=with_slow)


LONG = ("docs/guides/analog-chip.md", "docs/guides/beside-the-weights.md", "docs/guides/reports.md")
"""Pages whose code takes ten seconds or more."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in pages()]
)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch, with_slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_the_slow_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch, with_slow=True)


@pytest.mark.parametrize("page", ALL)
def test_every_block_says_what_it_is(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    known = RUN | {"text", "toml"}
    assert [block.line for block in blocks(text) if block.language not in known] == [], f"name one of {known}"
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"\n\n {4}(?![-*\d|!\s]).*", outside)
    assert not indented, "fence code that is indented"


@pytest.mark.parametrize("page", ALL)
def test_code_fits_the_page(page: str) -> None:
    shown = blocks((ROOT / page).read_text(encoding="utf-8"))
    lines = [line for block in shown if block.language != "text" for line in block.text.splitlines()]
    assert [line for line in lines if len(line) > MOST_COLUMNS] == []


def commands() -> Iterator[list[str]]:
    """The commands of quietnn that no test runs."""
    for page in (*ALL, "README.md"):
        for block in blocks((ROOT / page).read_text(encoding="utf-8")):
            if block.language == "sh" and not block.runs:
                lines = [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]
                yield from (line for line in lines if line and line[0] == "quietnn")


@pytest.mark.parametrize("command", list(commands()), ids=lambda words: words[1])
def test_a_command_that_is_not_run_has_options_and_presets_that_there_are(command: list[str]) -> None:
    verb = typer.main.get_command(app).commands[command[1]]  # type: ignore[attr-defined]
    given = verb.make_context(command[1], command[2:]).params
    kind = {"sweep": NoisyInference, "federate": NoisyTraining}.get(command[1])
    if kind is not None:
        load_config(kind, Path(given["config"]), preset=given["preset"], overrides=given["set_"] or ())


def test_a_block_that_is_not_run_says_why() -> None:
    (block,) = blocks("<!-- not run: needs a GPU -->\n```sh\ntrain\n```\n")
    assert (block.runs, block.line, block.text) == (False, 2, "train\n")
    assert blocks("<!-- not run -->\n```sh\ntrain\n```\n")[0].runs


def test_a_block_that_fails_fails_the_page(tmp_path: Path) -> None:
    for code in ("```python\nassert False\n```", "```sh\nfalse\n```", "```python\n>>> 1\n2\n\n```"):
        (tmp_path / "page.md").write_text(code + "\n")
        with pytest.raises(AssertionError):
            run_page(str(tmp_path / "page.md"), tmp_path, with_slow=False)
