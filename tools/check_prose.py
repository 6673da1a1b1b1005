"""Find sentences that are too long to read, and table cells that hold more than one thing.

python tools/check_prose.py

Checked are README.md, CONTRIBUTING.md, the READMEs of benchmarks/ and results/, the pages of docs/, the docstrings of
the public names, and the heads of the modules. Code, tables (but for the length of a cell) and headings count as no
sentence.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MOST_WORDS = 40
MOST_CHARACTERS = 120
"""Of a table cell, as it is read: a link counts as its words."""

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", flags=re.MULTILINE | re.DOTALL)
_NO_PROSE = re.compile(r"\s*(?:\||#|!!!|:::)|\s{4}")
_ITEM = re.compile(r"^(?:[-*+]|\d+\.)\s")
_END = re.compile(r"(?<=[.!?])[\"')*\]]*\s+(?=[\"'(`*\[]*[A-Z0-9`])")
_SECTION = re.compile(r"(?:Args|Attributes|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^\w[\w, ]*: |^[A-Z]\w+:$|^:::")


def documents() -> list[Path]:
    """The Markdown files that are read as prose."""
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/README.md")]
    pages = sorted(path for path in DOCS.rglob("*.md") if not path.is_relative_to(DOCS / "results"))
    return [path for path in named if path.exists()] + pages


def modules() -> list[Path]:
    """The modules of the package."""
    return sorted((ROOT / "src" / "quietnn").rglob("*.py"))


def in_document(text: str) -> Iterator[str]:
    """What is wrong with a page, each with its line."""
    text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL))
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                shown = _plain(cell.strip())
                if len(shown) > MOST_CHARACTERS:
                    yield f"{number}: a table cell has {len(shown)} characters: {shown[:40]}..."
    yield from _long_sentences(["" if _NO_PROSE.match(line) else line for line in lines])


def in_docstring(text: str) -> Iterator[str]:
    """What is wrong with a docstring; examples, and formulas, which stand indented outside sections, are left out."""
    lines, in_section = [], False
    for line in inspect.cleandoc(text).splitlines():
        if line and not line.startswith(" "):
            in_section = bool(_SECTION.match(line))
        is_code = re.match(r"\s*(?:>>>|\.\.\. )", line) or (line.startswith("    ") and not in_section)
        lines.append("" if is_code else line)
    yield from _long_sentences(lines)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _plain(text: str) -> str:
    """Markdown as it is read: links as their words, code as one word."""
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")


def _long_sentences(lines: list[str]) -> Iterator[str]:
    """The sentences with too many words; a blank line, a list item or an entry begins a new one."""
    start, paragraph = 1, ""
    for number, line in enumerate([*lines, ""], start=1):
        stripped = line.strip()
        if not stripped or _ITEM.match(stripped) or _ENTRY.match(stripped):
            yield from _in_paragraph(paragraph, start)
            start, paragraph = number, ""
        start = start if paragraph else number
        paragraph += " " + stripped if stripped else ""
    yield from _in_paragraph(paragraph, start)


def _in_paragraph(paragraph: str, line: int) -> Iterator[str]:
    text = re.sub(r"`[^`]+`", "`code`", _plain(paragraph))
    for sentence in _END.split(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            yield f"{line}: a sentence has {len(words)} words: {' '.join(words[:8])} ..."


def public_docstrings() -> Iterator[tuple[str, str]]:
    """The docstring of every public name, and the head of every module."""
    import quietnn

    for name in quietnn.__all__:
        value = getattr(quietnn, name)
        yield f"quietnn.{name}", (type(value) if name.isupper() and name != "AWGN" else value).__doc__ or ""
    for path in modules():
        yield path.relative_to(ROOT).as_posix(), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def problems() -> Iterator[str]:
    """All of them, with the place."""
    for path in documents():
        for problem in in_document(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}:{problem}"
    for name, text in public_docstrings():
        for problem in in_docstring(text):
            yield f"{name}: line {problem}"


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found))
    sys.exit(1 if found else 0)
