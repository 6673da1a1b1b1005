"""The live page in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietnn import records as store
from quietnn.records import Record
from quietnn.reports.page.live import LiveServer, Watch

pytestmark = pytest.mark.browser

Make = Callable[..., list[Record]]


def test_a_record_appears_without_a_reload_and_choices_stay(
    make_records: Make, write_run: Callable[..., Path], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    found = make_records(num_draws=2, methods=("ml", "mmse_pb"))
    config = {"wnr_db": sorted({r["wnr_db"] for r in found[1:]}), "methods": ["ml", "mmse_pb"], "num_draws": 2}
    folder = write_run(tmp_path / "run", found[:-1], **config)
    with LiveServer(Watch([folder], command="quietnn report run --live")).running() as live:
        page = open_page(live.address)
        page.evaluate("window.sameDocument = true")
        page.wait_for_selector(f"#live >> text={len(found) - 1} of {len(found)} records")
        page.fill("#results-0-search", "mmse_pb")
        status = page.locator("#results-0 [role=status]")
        assert status.text_content() == f"13 of {len(found) - 1} records"
        store.append(folder / "records.jsonl", found[-1:])
        page.wait_for_selector("#live >> text=Finished")
        page.wait_for_selector("#results-0 [role=status] >> text=/^14 of/")  # by no script: the page forbids it
        assert page.input_value("#results-0-search") == "mmse_pb"
        assert page.evaluate("window.sameDocument") is True
        order = page.locator("#parts > section").evaluate_all("parts => parts.map(part => part.id)")
        assert order == ["task-0", "results", "words", "ran"]


def test_a_mark_in_sight_says_that_the_page_is_live_and_when_the_run_is_finished(
    make_records: Make, write_run: Callable[..., Path], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    found = make_records(num_draws=2, methods=("ml", "mmse"))
    config = {"wnr_db": sorted({r["wnr_db"] for r in found[1:]}), "methods": ["ml", "mmse"], "num_draws": 2}
    folder = write_run(tmp_path / "run", found[:-1], **config)
    with LiveServer(Watch([folder])).running() as live:
        page = open_page(live.address, width=390)
        mark = page.locator("#mark")
        assert mark.text_content() == "Live"
        page.locator("#ran").scroll_into_view_if_needed()
        box = mark.bounding_box()
        assert 0 <= box["y"] < 60
        assert box["x"] + box["width"] <= 390
        store.append(folder / "records.jsonl", found[-1:])
        page.wait_for_selector("#mark.mark-done >> text=Finished")


def test_a_run_that_has_not_begun_is_waited_for(
    make_records: Make, write_run: Callable[..., Path], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    with LiveServer(Watch([tmp_path / "run"])).running() as live:
        page = open_page(live.address)
        assert "no records yet" in page.locator("h1").text_content()
        write_run(tmp_path / "run", make_records(num_draws=2, methods=("ml", "mmse")))
        page.wait_for_selector("#task-0-accuracy .series")
        assert page.locator("h1").text_content() == "Handwritten digits under weight noise"
