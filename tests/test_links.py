"""Every link of the documentation leads to a file, and to a heading of it; mkdocs is not needed to know."""

import re
import unicodedata
from pathlib import Path

import pytest
from tests.pages import DOCS, ROOT, documents

NAMED = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
DOCUMENTS = [*(path for path in NAMED if path.exists()), *documents()]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The name by which a link reaches a heading, as MkDocs makes it.

    >>> slug("The paper's figures"), slug("`quietnn repair`")
    ('the-papers-figures', 'quietnn-repair')
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def headings(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(document: Path) -> None:
    text = _CODE.sub("", document.read_text(encoding="utf-8"))
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if target.is_relative_to(DOCS / "results"):
            continue  # these pages exist at build time only; the strict build of the site checks links to them
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            lost.append(link)
    assert lost == []
