"""The site opened from a disk: its search finds words, and no request leaves the machine."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages, built with the theme and plugins of mkdocs.yml."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    (folder / "docs" / "below").mkdir(parents=True)
    (folder / "docs" / "index.md").write_text("# First\n\n[second](below/second.md)\n")
    (folder / "docs" / "below" / "second.md").write_text("# Second\n\nHere is the posterior.\n")
    for name in ("javascripts", "stylesheets"):
        shutil.copytree(ROOT / "docs" / name, folder / "docs" / name)
    own: dict[str, Any] = {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "site"), "hooks": []}
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=["material/search", "material/offline"], **own)
    config.nav = None
    build(config)
    return folder / "site"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    yield opened
    opened.close()


@pytest.mark.parametrize("start", ["index.html", "below/second.html"])
def test_the_search_works_from_a_disk_and_asks_no_network(site: Path, page: Any, start: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / start).as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("posterior")
    page.click(".md-search-result__item a")
    page.wait_for_url("**/below/second.html?h=posterior*")
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
