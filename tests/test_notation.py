"""The page of symbols points at code that exists."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "notation.md"
MODULES = r"units|weights|channels|denoisers|theory|tuning|experiments"


def places() -> list[str]:
    """What the last column of each table names, as a dotted path inside the package."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [row.rstrip("|").rpartition("|")[2] for row in rows]
    return sorted({place for cell in cells for place in re.findall(rf"`((?:{MODULES})[\w.]*)`", cell)})


@pytest.mark.parametrize("place", places())
def test_every_place_exists(place: str) -> None:
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module("quietnn." + ".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return
    pytest.fail(f"{place} is nowhere")


def test_the_page_names_places() -> None:
    assert len(places()) >= 15
