"""The table of names on docs/media.md."""

import re
from pathlib import Path

from quietnn.channels.named import MEDIA

PAGE = Path(__file__).parents[2] / "docs" / "media.md"


def test_every_medium_is_on_the_page_with_what_it_is_set_by() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+)` \|[^|]*\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.M))
    assert rows == {name: medium.level for name, medium in MEDIA.items()}
