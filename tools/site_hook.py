"""The hook of mkdocs.yml: results, benchmarks and notebooks become pages, and links to the repository become copies.

A page may link to a file of the repository, such as `../../examples/bring_your_own_model.py`. That works where the
repository is read as it is. In the site the file is copied, and the link leads to the copy.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from notebooks import to_markdown
from results_pages import write_pages

ROOT = Path(__file__).parents[1]
BENCHMARKS = "results/benchmarks.md"
PAGES = {"benchmarks/README.md": BENCHMARKS, "results/README.md": "results/index.md"}
"""The Markdown of the repository that is a page of the site, too."""

COPIES = "files"
"""The folder of the site that holds copies of the repository's files."""

_LINK = re.compile(r"(\]\(|\bsrc=\")((?:\.\./)+)([^)#\"\s]+)")

_SHORT = re.compile(r"<code>([^<\n]{1,28})</code>")


class Notebook(File):
    """A notebook whose content is Markdown by now, so that it is a page like any other."""

    def is_documentation_page(self) -> bool:
        """Always: MkDocs would take it for a file to copy."""
        return True


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the pages of results, and name them and the notebooks in the navigation."""
    docs = Path(config.docs_dir)
    pages = write_pages(docs / "results")
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (docs / BENCHMARKS).write_text(rebased(benchmarks, "benchmarks", "docs/results"), encoding="utf-8")
    _fill(config.nav, "Results", [*(path.relative_to(docs).as_posix() for path in pages), {"Benchmarks": BENCHMARKS}])
    notebooks = sorted(path.relative_to(docs).as_posix() for path in (docs / "tutorials").glob("*.ipynb"))
    _fill(config.nav, "Tutorials", notebooks)
    return config


def _fill(nav: Any, title: str, entries: list[Any]) -> None:
    """Put entries under an item of the navigation; without any, the item goes."""
    item = next(item for item in nav if title in item)
    item[title] = entries
    if not entries:
        nav.remove(item)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace every notebook by a page with its pictures, and add what pages link to outside docs/."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            folder, name = posixpath.split(file.src_uri)
            markdown, pictures = to_markdown(file.content_string, name.removesuffix(".ipynb"))
            files.remove(file)
            files.append(Notebook.generated(config, file.src_uri, content=markdown))
            for picture, content in pictures.items():
                files.append(File.generated(config, posixpath.join(folder, picture), content=content))
    for page in list(files.documentation_pages()):
        for match in _LINK.finditer(page.content_string):
            target, inside = _outside(match, page.src_uri)
            if inside and files.get_file_from_path(inside) is None:
                files.append(_copy(target, inside, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to a page of the site, or else to a copy of the file."""

    def led(match: re.Match[str]) -> str:
        _, inside = _outside(match, page.file.src_uri)
        return match[1] + posixpath.relpath(inside, posixpath.dirname(page.file.src_uri) or ".") if inside else match[0]

    return _LINK.sub(led, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark short pieces of code, which a style sheet keeps on one line: a phone breaks `--exclude` after its dashes."""
    return _SHORT.sub(r'<code class="short">\1</code>', html)


def _outside(match: re.Match[str], src_uri: str) -> tuple[str, str]:
    """The file of the repository that a link of a page leads to, and its place in the site; empty if it is in docs/."""
    target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(src_uri), match[2] + match[3]))
    if target.startswith("docs/") or not (ROOT / target).is_file():
        return target, ""
    return target, PAGES.get(target, posixpath.join(COPIES, target))


def _copy(target: str, inside: str, config: MkDocsConfig) -> File:
    """A file of the repository as one of the site; Markdown is a page, out of the navigation."""
    if not target.endswith(".md"):
        return File.generated(config, inside, abs_src_path=str(ROOT / target))
    markdown = rebased(
        (ROOT / target).read_text(encoding="utf-8"), posixpath.dirname(target), f"docs/{posixpath.dirname(inside)}"
    )
    return File.generated(config, inside, content=markdown, inclusion=InclusionLevel.NOT_IN_NAV)


def rebased(markdown: str, folder: str, to: str) -> str:
    """The same Markdown with its relative links leading, from another folder, to where they led.

    >>> rebased("[how](../docs/index.md) [it](it.py)", "benchmarks", "docs/results")
    '[how](../index.md) [it](../../benchmarks/it.py)'
    """

    def moved(match: re.Match[str]) -> str:
        return "](" + posixpath.relpath(posixpath.join(folder, match[1]), to)

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)", moved, markdown)
