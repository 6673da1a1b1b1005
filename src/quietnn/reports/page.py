"""One self-contained web page: tables and inline figures, no script, no network; text from records is escaped."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quietnn.reports.figures import write_whole
from quietnn.reports.tables import Table, to_html


@dataclass(frozen=True, eq=False)
class PageSection:
    """A heading, the sentences that say what was found, figures with captions, and tables.

    Attributes:
        heading: what was measured.
        headline: the one number a reader takes home, and what it means; may be empty.
        sentences: plain statements.
        figures: the SVG of each figure, and its caption.
        tables: in the order of reading.
    """

    heading: str
    headline: tuple[str, str]
    sentences: Sequence[str]
    figures: Sequence[tuple[str, str]]
    tables: Sequence[Table]


def write_page(
    path: Path, *, title: str, sections: Sequence[PageSection], facts: Mapping[str, str], details: Mapping[str, str]
) -> None:
    """Write the page in one step: whole or not at all.

    Args:
        path: the file, by custom `report.html`.
        title: the page's title.
        sections: what it shows.
        facts: what ran, as name and value: seeds, version, command, date.
        details: longer texts to fold away, such as a configuration.
    """
    page = render_page(title=title, sections=sections, facts=facts, details=details)
    write_whole(path, page.encode())


def render_page(
    *, title: str, sections: Sequence[PageSection], facts: Mapping[str, str], details: Mapping[str, str]
) -> str:
    """The page as text."""
    body = "\n".join(_section(section, index) for index, section in enumerate(sections))
    rows = "\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
    folded = "\n".join(
        f"<details><summary>{html.escape(name)}</summary><pre>{html.escape(text)}</pre></details>"
        for name, text in details.items()
    )
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=body, facts=rows, details=folded)


def inline_svg(svg: str, *, prefix: str, label: str) -> str:
    """A figure's SVG ready to stand in a page: no prologue, no comments, identifiers that meet no other figure's."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(xlink:href=")#', rf"\1#{prefix}-", svg)
    svg = svg.replace("url(#", f"url(#{prefix}-")
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html.escape(label)}">{rest}'


def _section(section: PageSection, index: int) -> str:
    parts = [f"<h2>{html.escape(section.heading)}</h2>"]
    if section.headline[0]:
        number, meaning = map(html.escape, section.headline)
        parts.append(f'<p class="headline"><strong>{number}</strong> <span>{meaning}</span></p>')
    if section.sentences:
        parts.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in section.sentences) + "</ul>")
    blocks = [
        f"<figure><div>{inline_svg(svg, prefix=f's{index}f{number}', label=caption)}</div>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        for number, (svg, caption) in enumerate(section.figures)
    ]
    tables = [f'<div class="scroll">{to_html(table)}</div>' for table in section.tables]
    return "<section>\n" + "\n".join([*parts, *blocks[:1], *tables, *blocks[1:]]) + "\n</section>"


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6475; --paper: #fbfbfa; --card: #ffffff; --line: #dfe2e8;
  --accent: #0b5fa5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ee; --soft: #a3abba; --paper: #14171d; --card: #1c2028;
  --line: #323844; --accent: #7cbcf2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1.5rem; letter-spacing: -0.01em; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
.headline { margin: 0.5rem 0 1rem; }
.headline strong { font-size: 2.6rem; line-height: 1.1; color: var(--accent); font-variant-numeric: tabular-nums;
  margin-right: 0.4rem; white-space: nowrap; }
.headline span, figcaption, caption, dt { color: var(--soft); }
ul { padding-left: 1.2rem; }
figure { margin: 1.5rem 0; }
figure > div { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption, caption { font-size: 0.875rem; margin-top: 0.4rem; }
caption { text-align: left; padding-bottom: 0.4rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: 0.35rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th[scope="row"], th:first-child { text-align: left; font-weight: 600; position: sticky; left: 0;
  background: var(--paper); }
thead th { color: var(--soft); font-weight: 500; border-bottom-width: 2px; }
tbody tr:hover td { background: var(--card); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.2rem; margin: 1rem 0; font-size: 0.9rem; }
dd { margin: 0; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem;
  font-size: 0.8rem; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 34rem) { body { padding: 1.25rem 0.9rem 3rem; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 0.5rem; } .headline strong { font-size: 2.1rem; } }
@media print { body { max-width: none; } details { display: none; } }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
<section>
<h2>What ran</h2>
<dl>
{facts}
</dl>
{details}
</section>
</main>
</body>
</html>
"""
