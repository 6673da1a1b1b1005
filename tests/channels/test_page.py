"""The table of names on docs/channels.md."""

import re
from pathlib import Path

from quietnn.channels.table import CHANNELS

PAGE = Path(__file__).parents[2] / "docs" / "channels.md"


def test_the_page_tells_what_each_channel_is_set_by() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+)` \|[^|]*\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.M))
    assert len(rows) >= 10
    assert rows == {name: row.level for name, row in CHANNELS.items() if name in rows}
