"""The page as one file: styles, scripts and the compressed numbers, and nothing fetched when it is read."""

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from quietnn.errors import InvalidConfig
from quietnn.files import write_whole
from quietnn.reports.analysis import Analysis, analyse_runs
from quietnn.reports.page.payload import page_payload
from quietnn.reports.runs import Run

MOST_BYTES = 6_000_000
"""A page stays below this: it is mailed, attached to reviews, opened on phones."""

_THRIFT = ((200_000, 200_000), (60_000, 200_000), (20_000, 100_000), (5_000, 30_000), (2_000, 5_000))
"""Points of surfaces and rows of records to keep, most first."""

_TOOLS = ("dom", "terms", "save", "colour", "scale", "tooltip", "chart", "mesh", "heatmap", "relief", "dots", "table")
_SECTIONS = ("quantity", "head", "accuracy", "surface", "layers", "training", "theory", "results", "main")
"""The parts of the one script, in the order in which they build on each other."""


def write_report(
    path: Path, runs: Sequence[Run], *, level: float | None = None, written: str = "", command: str = ""
) -> Path:
    """Write the page of some runs, as `read_run` returns them, whole or not at all; returns its path.

    Gains are read at an accuracy, by default the paper's. Without when it was `written`, the same records give the same
    page. The command is what the user typed.
    """
    page = render_report(analyse_runs(runs, level=level), written=written, command=command)
    write_whole(path, page.encode())
    return path


def render_report(analysis: Analysis, *, written: str = "", command: str = "") -> str:
    """The page of runs that were analysed already, thinned out until it is small enough."""
    for most_trials, most_rows in _THRIFT:
        payload = page_payload(analysis, most_trials=most_trials, most_rows=most_rows)
        page = render_page(payload | {"written": written, "command": command})
        if len(page) <= MOST_BYTES:
            return page
    raise InvalidConfig(
        f"the page of {len(analysis.runs)} runs has {len(page):,} bytes even without its details, "
        f"above {MOST_BYTES:,}; give fewer runs to one page"
    )


def render_page(payload: Mapping[str, Any], *, live: bool = False) -> str:
    """A payload as a page; a live one may also ask its own server for news."""
    style, script = _asset("page.css"), _script()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data: blob:; "
        f"connect-src '{'self' if live else 'none'}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(str(payload.get("title", "quietnn"))),
        "style": style,
        "script": script,
        "data": _base64(compress(payload)),
        "live": " data-live" if live else "",
        "fallback": _fallback(payload),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def compress(payload: Mapping[str, Any]) -> bytes:
    """A payload as compressed JSON, the same bytes for the same numbers."""
    text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _fallback(payload: Mapping[str, Any]) -> str:
    """What a reader without scripts gets: the findings and the tables."""
    parts = [f"<p>{html.escape(str(payload.get('lead', '')))}</p>"]
    parts += [f"<p>{html.escape(line)}</p>" for line in payload.get("notices", ())]
    for task in payload.get("tasks", ()):
        parts.append(f"<h2>{html.escape(task['title'])}</h2>")
        if top := task["headline"]:
            parts.append(f"<p><strong>{html.escape(top['value'])}</strong> {html.escape(top['text'])}</p>")
        parts += [f"<p>{html.escape('{have}: {use}, {text}'.format(**line))}</p>" for line in task["advice"]]
        parts.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in task["sentences"]) + "</ul>")
        parts += [_html_table(table) for table in task["tables"].values()]
    for term in payload.get("terms", ()):
        parts.append(f"<p><strong>{html.escape(term['word'])}</strong>: {html.escape(term['text'])}</p>")
    return "\n".join(parts)


def _html_table(table: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table["header"])
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"])
    return f"<table><caption>{html.escape(table['caption'])}</caption><tr>{head}</tr>{rows}</table>"


def _digest(text: str) -> str:
    """What a content security policy calls a text by."""
    return "sha256-" + _base64(hashlib.sha256(text.encode()).digest())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in (*_TOOLS, *_SECTIONS))
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def _asset(name: str) -> str:
    return (files("quietnn.reports.page") / "assets" / name).read_text(encoding="utf-8")
