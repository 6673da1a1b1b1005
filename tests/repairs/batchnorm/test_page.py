"""The examples on the pages about methods without labels run."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["calibration", "self-training"])
def test_the_example_runs(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / f"{name}.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert (failed, attempted > 0) == (0, True)
