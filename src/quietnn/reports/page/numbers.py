"""Numbers and tables on their way to the page."""

import math
from collections.abc import Iterable
from typing import Any

from quietnn.reports.tables import Table, to_csv, to_latex

DIGITS = 9
"""Significant digits of a number on the page: beyond what a figure or a table shows, and half the bytes."""


def short(values: Iterable[float]) -> list[Any]:
    """Numbers for JSON: nine digits, None for NaN, a name for an infinity.

    >>> short([0.1 + 0.2, float("nan"), float("inf"), 3.0])
    [0.3, None, 'inf', 3]
    """
    return [_short(float(value)) for value in values]


def _short(value: float) -> Any:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value.is_integer() and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def table_payload(table: Table) -> dict[str, Any]:
    """A table with its files: what the page shows and what its buttons save."""
    return {
        "caption": table.caption,
        "header": list(table.header),
        "rows": [list(row) for row in table.rows],
        "csv": to_csv(table),
        "latex": to_latex(table) + "\n",
    }
