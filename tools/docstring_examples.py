"""An extension of mkdocstrings: examples in docstrings are shown as code; Markdown takes `>>>` for a quotation."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.MULTILINE | re.DOTALL)


def fenced(docstring: str) -> str:
    """A docstring with a fence around every example."""
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```", docstring)


class DocstringExamples(Extension):
    """Fences the examples of every docstring that is shown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change one docstring, after it was read from the code."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
