"""A real Chromium for the page; without one these tests are skipped, visibly."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quietnn.records import Record
from quietnn.reports.page.document import write_report
from quietnn.reports.runs import Run

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a file or an address; a complaint on the console or a request to the network fails the test.

    A script may run `before` those of the page.
    """
    troubles: list[str] = []
    contexts = []

    def opened(target: Path | str, *, width: int = 1280, before: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _check_request(request.url, troubles))
        page.add_init_script(before)
        page.goto(target.as_uri() if isinstance(target, Path) else target)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("main[aria-busy=false]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def write_page(tmp_path: Path) -> Callable[..., Path]:
    """A page of runs, each a list of records."""

    def written(*runs: list[Record], name: str = "digits", **config: Any) -> Path:
        found = [Run(f"{name}{at or ''}", tmp_path / str(at), config, tuple(run)) for at, run in enumerate(runs)]
        return write_report(tmp_path / "report.html", found, command="quietnn report runs/digits", written="2024-02-29")

    return written


def _check_request(url: str, troubles: list[str]) -> None:
    if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")):
        troubles.append(f"request to {url}")
