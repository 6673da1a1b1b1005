"""The tutorials: small, complete, readable without Jupyter; and, where Jupyter is, still true."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tutorials.execute import NAMES, TUTORIALS

Cell = dict[str, Any]

MOST_BYTES = 300_000
MOST_WORDS = 40
"""In a sentence."""
MOST_CORE_SECONDS = 600
"""Far above the two minutes on two cores that a tutorial may take: a busy machine is no failure."""
TOLERANCE = 0.25
"""By how much a number may differ from the stored one: processors round differently, training amplifies it, and a
perplexity near 100 amplifies it again: 12 % between two machines."""

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
MACHINE = re.compile(r"(?:^|[\s\"'(=])(?:/(?:tmp|home|root|work|opt|usr|var|Users)/|[A-Z]:\\)|site-packages")


def cells_of(path: Path, kind: str) -> list[Cell]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source_of(cell: Cell) -> str:
    return "".join(cell["source"])


def printed(cell: Cell) -> str:
    """What a cell printed; of a figure that it is one."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(text) for text in texts)


def words_of(text: str) -> str:
    """A text without its numbers and without how wide they are."""
    return " ".join(NUMBER.sub("#", text).split())


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return TUTORIALS / f"{request.param}.ipynb"


def test_there_are_three() -> None:
    assert NAMES == ["model-over-a-noisy-link", "network-on-a-pcm-chip", "over-the-air-federation"]


def test_it_is_small(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES


def test_it_begins_with_a_title(path: Path) -> None:
    assert source_of(cells_of(path, "markdown")[0]).startswith("# ")


def test_its_code_compiles(path: Path) -> None:
    for place, cell in enumerate(cells_of(path, "code")):
        compile(source_of(cell), f"{path.name}, cell {place}", "exec")


def test_it_was_run_once_from_top_to_bottom(path: Path) -> None:
    code = cells_of(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        if "print(" in source_of(cell) or "plt.show()" in source_of(cell):
            assert cell["outputs"], source_of(cell)


def test_nothing_went_wrong_in_it(path: Path) -> None:
    outputs = [output for cell in cells_of(path, "code") for output in cell["outputs"]]
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)


def test_it_has_a_figure(path: Path) -> None:
    outputs = [output for cell in cells_of(path, "code") for output in cell["outputs"]]
    assert any(name.startswith("image/") for output in outputs for name in output.get("data", {}))


def test_it_names_no_place_on_a_machine(path: Path) -> None:
    texts = [source_of(cell) for kind in ("markdown", "code") for cell in cells_of(path, kind)]
    texts += [printed(cell) for cell in cells_of(path, "code")]
    assert [text for text in texts if MACHINE.search(text)] == []


def test_its_sentences_can_be_read(path: Path) -> None:
    prose = "\n\n".join(source_of(cell) for cell in cells_of(path, "markdown"))
    prose = re.sub(r"```.*?```|^#+ .*?$|^\|.*?\|$", "", prose, flags=re.DOTALL | re.MULTILINE)
    sentences = re.split(r"[.?:!](?=\s)|\n\n|\n- ", prose)
    assert [sentence for sentence in sentences if len(sentence.split()) > MOST_WORDS] == []


@pytest.mark.notebooks
def test_it_runs_and_says_what_is_stored(path: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("execute.py")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, str(script), path.stem, "--into", str(tmp_path)], check=True, timeout=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_CORE_SECONDS
    stored, fresh = cells_of(path, "code"), cells_of(tmp_path / path.name, "code")
    for old, new in zip(stored, fresh, strict=True):
        if "varies" in old["metadata"].get("tags", []):  # text that a network wrote
            assert printed(new)
            continue
        assert words_of(printed(new)) == words_of(printed(old))
        assert numbers_of(printed(new)) == pytest.approx(numbers_of(printed(old)), rel=TOLERANCE, abs=0.011)


@pytest.mark.parametrize(
    "text", ["in /tmp/x/y", "'/root/a'", '"/home/me/a.py"', "C:\\Users", "lib/site-packages/torch"]
)
def test_a_place_on_a_machine_is_seen(text: str) -> None:
    assert MACHINE.search(text)


@pytest.mark.parametrize("text", ["noise std / weight std", "../guides/home/page.md", "lm/FOLDER", "clean-model/"])
def test_other_text_is_not_taken_for_one(text: str) -> None:
    assert not MACHINE.search(text)


def test_numbers_are_compared_apart_from_words() -> None:
    assert words_of("a   -26.0 dB, 9,098 weights") == words_of("a 3.5 dB,  12 weights")
    assert numbers_of("a -26.0 dB, 9,098 weights: 1e-3") == [-26.0, 9098.0, 0.001]
