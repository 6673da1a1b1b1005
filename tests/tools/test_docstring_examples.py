"""Examples in docstrings are code on the site's page of public names, not quotations."""

import pytest

pytest.importorskip("griffe", reason="needs the [docs] extra")

from tools.docstring_examples import fenced


def test_an_example_stands_in_a_fence() -> None:
    text = "One.\n\n>>> 1 + 1\n2\n\nMore:\n\n    y = x\n\n>>> for i in ():\n...     pass"
    assert fenced(text) == (
        "One.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore:\n\n    y = x\n\n```pycon\n>>> for i in ():\n...     pass\n```"
    )


def test_a_docstring_without_examples_stays() -> None:
    assert fenced("Two `>>>` in a line.") == "Two `>>>` in a line."
