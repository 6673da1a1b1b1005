"""The examples on the pages of docs/ run as printed."""

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if ">>> " in page.read_text(encoding="utf-8"))
NEED_MORE = {"flower.md", "reports.md"}
"""Pages whose Python stands for files and services that a test does not have."""


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name: str) -> None:
    failed, attempted = doctest.testfile(str(DOCS / name), module_relative=False, encoding="utf-8")
    assert (failed, attempted > 0) == (0, True)


def test_every_page_with_python_has_examples_that_run() -> None:
    with_python = {page.name for page in DOCS.glob("*.md") if "```python" in page.read_text(encoding="utf-8")}
    assert with_python - NEED_MORE == set(PAGES)
    for name in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        assert all(block.startswith(">>> ") for block in blocks), name
