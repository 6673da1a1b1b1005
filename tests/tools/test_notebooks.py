"""A notebook becomes a page with its outputs."""

import base64
import json

from tools.notebooks import to_markdown

PICTURE = b"not really a picture"


def notebook(*cells: dict[str, object]) -> str:
    return json.dumps({"cells": cells})


def test_text_code_and_pictures_come_in_order() -> None:
    outputs = [
        {"output_type": "stream", "text": ["printed\n"]},
        {"data": {"image/png": base64.b64encode(PICTURE).decode(), "text/plain": ["<Figure>"]}},
    ]
    markdown, pictures = to_markdown(
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {"cell_type": "code", "source": ["draw()"], "outputs": outputs},
        ),
        "tour",
    )
    assert markdown == (
        "# Title\nwords\n\n```python\ndraw()\n```\n\n```text\nprinted\n```\n\n![Output of the cell above](tour-1.png)\n"
    )
    assert pictures == {"tour-1.png": PICTURE}


def test_an_empty_cell_leaves_nothing() -> None:
    assert to_markdown(notebook({"cell_type": "code", "source": [], "outputs": []}), "x") == ("\n", {})


def test_code_that_holds_a_fence_gets_a_longer_one() -> None:
    markdown, _ = to_markdown(notebook({"cell_type": "code", "source": ["'```'"], "outputs": []}), "x")
    assert markdown.startswith("````python\n")
