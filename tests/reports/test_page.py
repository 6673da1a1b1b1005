"""The web page: whole, self-contained, and safe against what a record may hold."""

import re
from html.parser import HTMLParser
from pathlib import Path

from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.curves import make_curve
from quietnn.reports.figures import to_svg
from quietnn.reports.page import PageSection, render_page, write_page
from quietnn.reports.tables import Table

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>--!><b>"


class Tags(HTMLParser):
    """Collects tags, attributes and identifiers, and checks that tags close in order."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parse(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def evil_page() -> str:
    svg = to_svg(accuracy_figure([Panel(EVIL, (make_curve(EVIL, [0, 2], [[0.2, 0.8]], label=EVIL),), 0.6)]))
    section = PageSection(
        EVIL, (EVIL, EVIL), [EVIL], [(svg, EVIL), (svg, EVIL)], [Table(EVIL, (EVIL, EVIL), ((EVIL, EVIL),))]
    )
    return render_page(title=EVIL, sections=[section, section], facts={EVIL: EVIL}, details={EVIL: EVIL})


def test_nothing_in_a_record_becomes_a_tag_or_a_handler() -> None:
    tags = parse(evil_page())
    assert not tags.tags & {"script", "img", "b", "iframe", "object", "link"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]


def test_two_figures_on_one_page_share_no_identifier() -> None:
    tags = parse(evil_page())
    assert len(tags.ids) == len(set(tags.ids)) > 10
    used = [value[1:] for name, value in tags.attributes if name == "xlink:href" and value]
    used += re.findall(r"url\(#([^)]+)\)", " ".join(value or "" for _, value in tags.attributes))
    assert used
    assert set(used) <= set(tags.ids)


def test_the_page_needs_no_network() -> None:
    tags = parse(evil_page())
    links = [value or "" for name, value in tags.attributes if name in {"src", "href", "xlink:href"}]
    assert all(link.startswith("#") for link in links)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in tags.attributes


def test_it_fits_a_phone_and_the_dark() -> None:
    page = render_page(title="t", sections=[], facts={}, details={})
    assert 'name="viewport" content="width=device-width' in page
    assert "prefers-color-scheme: dark" in page


def test_the_page_is_written_whole(tmp_path: Path) -> None:
    write_page(tmp_path / "deep" / "report.html", title="Runs", sections=[], facts={"seed": "0"}, details={"c": "{}"})
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]
    assert "<dt>seed</dt><dd>0</dd>" in (tmp_path / "deep" / "report.html").read_text()
