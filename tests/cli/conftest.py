"""What the tests of several commands start from."""

from pathlib import Path

import pytest

from quietnn import records

WNRS = (-8.0, -6.0, -4.0, -2.0)
ACCURACIES = {"ml": (0.1, 0.3, 0.7, 0.9), "mmse_pb": (0.3, 0.7, 0.9, 0.9)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two methods exactly two decibels apart, two draws."""
    found = [
        {"method": method, "wnr_db": wnr_db, "draw": draw, "accuracy": accuracy, "task": "digits", "run": "[bold]"}
        for method, accuracies in ACCURACIES.items()
        for wnr_db, accuracy in zip(WNRS, accuracies, strict=True)
        for draw in (0, 1)
    ]
    records.append(tmp_path / "run" / "records.jsonl", found)
    return tmp_path / "run"
