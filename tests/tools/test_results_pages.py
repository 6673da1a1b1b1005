"""The Results section is written from the records: every page has its table, and no number in it was typed."""

import ast
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from quietnn import records
from quietnn.reports.analysis import analyse_runs

TOOLS = Path(__file__).parents[2] / "tools"
MOST_LETTERS = 60


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    """`tools/results_pages.py`, which finds its neighbours as a script does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        import results_pages

        yield results_pages
        for name in ("results_pages", "results_tables"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def pages(tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    began = time.process_time()
    written = tool.write_pages(tmp_path_factory.mktemp("site") / "results")
    assert time.process_time() - began < 60
    return list(written)


def read(page: Path) -> str:
    """A page, its unbreakable spaces as plain ones."""
    return page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")


def cells(page: str) -> list[str]:
    rows = [line for line in page.splitlines() if line.startswith("|")]
    return [cell.strip() for row in rows for cell in row.strip("|").split("|")]


def test_there_is_a_page_for_every_network_and_kind_of_experiment(pages: list[Path]) -> None:
    assert pages[0].name == "index.md"
    names = {page.stem for page in pages}
    assert {"digits", "resnet20", "shufflenetv2-x0-5", "shufflenetv2", "resnet18", "minilm"} <= names
    assert {"federation", "channels"} <= names


def test_every_page_has_its_tables_its_figure_its_command_and_what_intervals_cover(pages: list[Path]) -> None:
    assert [page.stem for page in pages[-3:]] == ["regret", "no-harm", "ablation"], (
        "summaries of benchmarks, as they stand"
    )
    for page in pages[:-3]:
        text = read(page)
        assert "Intervals cover draws" in text, page.name
        assert re.search(r"^\| method \|", text, re.M), page.name
        if page.stem not in ("smollm2", "resnet32"):  # one draw at most WNRs; and a network that never falls so low
            assert re.search(r"[+-]\d+\.\d \(", text), f"{page.name} has no gain with an interval"
    for page in pages[1:-3]:
        text = read(page)
        assert f"]({page.stem}.svg)" in text, page.name
        assert page.with_suffix(".svg").read_bytes().startswith(b"<?xml"), page.name
        assert "```sh\nquietnn " in text, page.name


def test_cells_are_short_and_notes_stand_below_the_table(pages: list[Path]) -> None:
    for page in pages:
        text = read(page)
        assert [cell for cell in cells(text) if len(cell) > MOST_LETTERS] == [], page.name
        for mark in set(re.findall(r"[¹²³⁴⁵⁶⁷⁸⁹](?= \|)", text)):
            assert re.search(rf"^- {mark} \S", text, re.M), f"{page.name} lacks note {mark}"


def test_links_of_the_index_lead_to_pages(pages: list[Path]) -> None:
    links = re.findall(r"\]\(([^)]+\.md)\)", read(pages[0]))
    assert sorted(link for link in links if "/" not in link) == sorted(page.name for page in pages[1:])


def test_a_folder_without_a_page_says_why(pages: list[Path]) -> None:
    text = read(pages[0])
    beside = text.partition("## Without a page")[2]
    assert re.findall(r"^- `results/(\S+)`: [A-Z]", beside, re.M) == sorted(re.findall(r"`results/(\S+)`:", beside))
    for link in re.findall(r"\]\(\.\./\.\./(results/[^)]+)\)", beside):
        assert (ROOT / link).is_file()


@pytest.mark.parametrize("name", ["results_pages.py", "results_tables.py"])
def test_no_result_is_typed_into_the_tool(name: str) -> None:
    tree = ast.parse((TOOLS / name).read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    typed = [text for text in texts if text not in docstrings and re.search(r"\d\s*(%|dB|points)|\d\.\d", text)]
    assert typed == []


def test_a_page_follows_the_records(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    results.mkdir()
    shutil.copy(tool.RESULTS / "README.md", results)
    accuracies = {"ml": (0.31, 0.62, 0.85), "posterior": (0.51, 0.82, 0.9)}
    for name, shift in (("digits", 0.0), ("digits-fresh", 0.05)):
        found = [
            {"experiment": "noisy_inference", "task": "digits", "method": method, "wnr_db": wnr_db, "draw": draw}
            | {"accuracy": accuracy + shift + draw / 100, "num_test_examples": 500, "seed": 0}
            for method, row in accuracies.items()
            for wnr_db, accuracy in zip((0.0, 4.0, 8.0), row, strict=True)
            for draw in range(3)
        ]
        records.append(results / name / "records.jsonl", found)
        (results / name / "config.json").write_text(json.dumps({"name": name, "task": "digits"}))
    monkeypatch.setattr(tool, "RESULTS", results)
    index, page = tool.write_pages(tmp_path / "site")
    text = read(page)
    assert "| ML | 32.0 ± 2.5 | 63.0 ± 2.5 | 86.0 ± 2.5 |" in text
    assert text.index("## digits-fresh") < text.index("## digits\n"), "fresh seeds come first"
    assert "nterpolated on a straight line between 0 and 4 dB" in text
    assert "quietnn sweep digits --out results/digits\n" in text
    assert re.search(r"^\| Posterior \| labels \| [+]\d\.\d \(.* ¹", read(index), re.M)
    assert "¹ Noise seeds that were not used during development" in read(index)


def test_a_language_model_has_perplexities(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    results.mkdir()
    shutil.copy(tool.RESULTS / "README.md", results)
    losses = {"clean": {math.inf: 2.0}, "ml": {14.0: 6.0, 17.0: 3.5}, "directions": {14.0: 4.5, 17.0: 3.0}}
    losses |= {"posterior": {14.0: 3.0}, "finetuned": {14.0: 3.4}, "lora": {14.0: 3.25}}
    shifts = {"posterior": (0.0, 0.1, 0.2)}
    found = [
        {"experiment": "noisy_inference", "task": "lm/stories15m@stories", "method": method, "wnr_db": wnr_db}
        | {"draw": draw, "accuracy": None, "score": math.exp(loss), "loss": loss, "num_test_examples": 20_000}
        for method, row in losses.items()
        for wnr_db, mean in row.items()
        for draw in range(3)
        for loss in [mean + shifts.get(method, (0.0, 0.0, 0.0))[draw]]
    ]
    records.append(results / "language-model" / "records.jsonl", found)
    (results / "language-model" / "config.json").write_text(json.dumps({"task": "lm/stories15m@stories"}))
    monkeypatch.setattr(tool, "RESULTS", results)
    _, page = tool.write_pages(tmp_path / "site")
    assert page.name == "stories15m.md"
    assert "| ML | 403 (403 to 403) | 33.1 (33.1 to 33.1) |" in read(page)
    gaps = read(page)[read(page).index("Share of the gap") :]
    assert "| MMSE by input direction | 37.5 ± 0.0 | 33.3 ± 0.0 |" in gaps
    assert "| Posterior | 72.5 ± 1.4 | – |" in gaps
    assert "| Fine-tuned | 0.300 ± 0.058 |" in gaps[gaps.index("Loss of the posterior") :]


ROOT = TOOLS.parent
PROSE = [ROOT / "results" / "README.md", *sorted((ROOT / "docs" / "how-it-works").glob("*.md"))]
FEDERATED_LEVELS = (0.4, 0.45, 0.52)
INTERVAL = re.compile(r"\((-?\d+\.\d+) to (-?\d+\.\d+)(?=[),])")


@pytest.fixture(scope="module")
def intervals(tool: ModuleType) -> list[tuple[float, float]]:
    """The interval of every gain in the records, and of federations also at the levels that the text names."""
    sections = tool.all_sections()
    tasks = [section.task for found in sections.values() for section in found]
    runs = [section.run for section in sections["federated"]]
    tasks += [task for run in runs for level in FEDERATED_LEVELS for task in analyse_runs([run], level=level).trained]
    gains = [gain for task in tasks for gain in task.gains if gain is not None and gain.low is not None]
    return [(gain.low, gain.high) for gain in gains] + [(-gain.high, -gain.low) for gain in gains]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_intervals_in_the_text_are_those_of_the_records(page: Path, intervals: list[tuple[float, float]]) -> None:
    def agrees(text: str, value: float) -> bool:
        return abs(float(text) - value) <= 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9

    said = INTERVAL.findall(page.read_text(encoding="utf-8"))
    stale = [pair for pair in said if not any(agrees(pair[0], a) and agrees(pair[1], b) for a, b in intervals)]
    assert stale == [], "correct these by `quietnn analyze`"
