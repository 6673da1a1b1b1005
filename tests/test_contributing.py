"""CONTRIBUTING.md: its code runs, its tree and links are true; the version is the same wherever it stands."""

import doctest
import re
import tomllib
from pathlib import Path

import quietnn
from quietnn.channels.table import CHANNELS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_a_channel_and_a_repair_are_added_as_printed() -> None:
    try:
        failed, attempted = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    finally:
        CHANNELS.pop("hum", None)
        quietnn.REPAIRS.remove("centred")
    assert (failed, attempted > 10) == (0, True)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert all(block.startswith(">>> ") for block in blocks)


def test_the_tree_names_every_part_of_the_package_and_nothing_else() -> None:
    (tree,) = re.findall(r"## The tree\n+```\n(.*?)```", TEXT, flags=re.DOTALL)
    named = re.findall(r"(?:^|\s)([\w/]+(?:/|\.py))(?=\s)", tree)
    package = ROOT / "src" / "quietnn"
    assert all((package / name).exists() or (ROOT / name).is_dir() for name in named)
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(named)


def test_every_target_of_make_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"make ([\w-]+)", TEXT)
    assert targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_every_page_it_names_exists() -> None:
    missing = [name for name in re.findall(r"\]\(([^)#]+)\)", TEXT) if not (ROOT / name).exists()]
    assert not missing


def test_the_version_is_the_same_in_all_three_places() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert citation is not None
    assert project["version"] == quietnn.__version__ == citation[1]
