"""The page as a file: whole, self-contained, small, and safe against what a record may hold."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from quietnn.errors import InvalidConfig
from quietnn.methods import METHODS
from quietnn.records import Record
from quietnn.reports.analysis import analyse_runs
from quietnn.reports.page import document
from quietnn.reports.page.document import MOST_BYTES, compress, render_page, render_report, write_report
from quietnn.reports.runs import Run

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>--!><b>{{style}}</noscript>"

Make = Callable[..., list[Record]]


class Tags(HTMLParser):
    """Collects tags and attributes, and checks that tags close in order."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parse(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def a_run(records: list[Record], name: str = "digits") -> Run:
    return Run(name, Path("runs") / "digits", {"name": name}, tuple(records))


def payload_of(page: str) -> dict[str, object]:
    found = re.search(r'id="data">([^<]*)<', page)
    assert found
    payload: dict[str, object] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return payload


def page_of(*runs: Run, **words: str) -> str:
    return render_report(analyse_runs(runs), **words)


def test_nothing_in_a_record_becomes_a_tag_or_a_handler(make_records: Make) -> None:
    records = make_records(run=EVIL, task=EVIL, methods=("ml", EVIL), num_draws=2, with_trials=False)
    page = page_of(a_run(records, EVIL), command=EVIL, written=EVIL)
    tags = parse(page)
    assert tags.tags.count("script") == 2
    assert not {*tags.tags} & {"img", "b", "iframe", "object", "link"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert page.count("<style>") == 1
    assert payload_of(page)["command"] == EVIL


def test_the_page_needs_no_network_and_runs_no_script_but_its_own(make_records: Make) -> None:
    page = page_of(a_run(make_records(num_draws=2)))
    tags = parse(page)
    assert not [value for name, value in tags.attributes if name in {"src", "href", "xlink:href"}]
    (policy,) = [value or "" for name, value in tags.attributes if name == "content" and "default-src" in (value or "")]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "connect-src 'none'" in policy
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_only_a_live_page_may_ask_its_server(make_records: Make) -> None:
    live = render_page({"title": "t"}, live=True)
    assert "connect-src 'self'" in live
    assert '<html lang="en" data-live>' in live


def test_the_same_records_give_the_same_page(make_records: Make) -> None:
    run = a_run(make_records(num_draws=2))
    assert page_of(run) == page_of(run)


def test_what_is_packed_comes_out_again() -> None:
    payload = {"title": "λ′ <b>", "numbers": [1, 2.5, None, "inf"]}
    assert json.loads(gzip.decompress(compress(payload))) == payload
    assert payload_of(render_page(payload)) == payload


def test_without_scripts_the_findings_and_tables_are_there(make_records: Make) -> None:
    page = page_of(a_run(make_records(num_draws=2)))
    fallback = page.split("<noscript>")[1].split("</noscript>")[0]
    assert "MMSE_pb layerwise holds 60 % with" in fallback
    assert "Inputs and labels: MMSE_pb layerwise, 160 passes, with labels, +3." in fallback
    assert "<strong>WNR</strong>: Weight-to-noise ratio" in fallback
    assert fallback.count("<table>") == 3


def test_a_page_that_grows_too_large_is_thinned_out_and_says_so(
    make_records: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(make_records(num_draws=4))
    whole = page_of(run)
    monkeypatch.setattr(document, "_THRIFT", ((200_000, 200_000), (500, 20)))
    monkeypatch.setattr(document, "MOST_BYTES", len(whole) - 1)
    thin = payload_of(page_of(run))
    (task,) = thin["tasks"]  # type: ignore[misc]
    assert any("left out to keep the page small" in line for line in task["notices"])
    assert "The first 20 of" in thin["results"][0]["notice"]  # type: ignore[index]
    monkeypatch.setattr(document, "MOST_BYTES", 1000)
    with pytest.raises(InvalidConfig, match="give fewer runs"):
        page_of(run)


def test_a_usual_page_is_small(make_records: Make) -> None:
    assert len(page_of(a_run(make_records()))) < 0.1 * MOST_BYTES


def test_the_page_is_written_whole(make_records: Make, tmp_path: Path) -> None:
    path = write_report(tmp_path / "deep" / "report.html", [a_run(make_records(num_draws=1, methods=("ml",)))])
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_the_page_can_draw_the_mark_of_every_method() -> None:
    script = (Path(document.__file__).parent / "assets" / "colour.js").read_text()
    known = set(re.findall(r'(?:^|[ {])"?([^\s":,{]+)"?: "M', script, re.MULTILINE)) | {"o"}
    assert {look.marker for look in METHODS.values()} <= known
