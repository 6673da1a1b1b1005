"""Turn a notebook, with the outputs it holds, into Markdown and the pictures that it shows."""

import base64
import json
from collections.abc import Iterator
from typing import Any

_PICTURES = {"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpg"}


def to_markdown(notebook: str, stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook's JSON as Markdown, and its pictures by file name; `stem` names them.

    >>> cells = [{"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}]
    >>> print(to_markdown(json.dumps({"cells": cells}), "sums")[0])
    ```python
    1 + 1
    ```
    <BLANKLINE>
    ```text
    2
    ```
    <BLANKLINE>
    """
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(_fenced(source, "python"))
            parts.extend(_outputs(cell.get("outputs", []), stem, pictures))
    return "\n\n".join(parts) + "\n", pictures


def _outputs(outputs: list[dict[str, Any]], stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """What a cell printed and showed; of several forms of one thing, the first of picture and text."""
    for output in outputs:
        if "text" in output:
            yield _fenced("".join(output["text"]).rstrip(), "text")
        data = output.get("data", {})
        kind = next((kind for kind in _PICTURES if kind in data), None)
        if kind:
            name = f"{stem}-{len(pictures) + 1}.{_PICTURES[kind]}"
            text = "".join(data[kind])
            pictures[name] = text.encode() if kind == "image/svg+xml" else base64.b64decode(text)
            yield f"![Output of the cell above]({name})"
        elif "text/plain" in data:
            yield _fenced("".join(data["text/plain"]), "text")


def _fenced(text: str, language: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}"
