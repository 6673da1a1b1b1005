"""The example on the page about auto runs."""

import doctest
from pathlib import Path


def test_the_example_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "auto.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert (failed, attempted > 0) == (0, True)
