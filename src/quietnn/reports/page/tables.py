"""Numbers and tables on their way to the page; records by column, so that a hundred thousand of them stay small."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quietnn.records import Record
from quietnn.records.schema import experiment_of, real
from quietnn.reports.runs import grouped
from quietnn.reports.tables import Table, to_csv, to_latex
from quietnn.reports.titles import counted

_DIGITS = 9
"""Significant digits of a number on the page: beyond what a figure or a table shows, and half the bytes."""

_FIRST = ("run", "task", "method", "scheme", "wnr_db", "round", "draw", "seed", "accuracy", "loss")
_LAST = ("config", "version")
_HIDDEN = {"experiment"}
_MOST_COLUMNS = 40


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
    return float(f"{value:.{_DIGITS}g}")


def table_payload(table: Table) -> dict[str, Any]:
    """A table with its files: what the page shows and what its buttons save."""
    return {
        "caption": table.caption,
        "header": list(table.header),
        "rows": [list(row) for row in table.rows],
        "csv": to_csv(table),
        "latex": to_latex(table) + "\n",
    }


def results_payload(records: Sequence[Record], *, most_rows: int) -> list[dict[str, Any]]:
    """A table for each kind of experiment: columns of numbers, or of words with each word kept once.

    Lists and mappings inside a record (surfaces, layers) have figures of their own and are left out here.
    """
    by_kind = grouped(records, lambda record: experiment_of(record) or "evaluation")
    return [_table(name, found, most_rows) for name, found in by_kind.items()]


def _table(experiment: str, records: Sequence[Record], most_rows: int) -> dict[str, Any]:
    kept = records[:most_rows]
    notice = f"The first {len(kept):,} of {counted(len(records), 'record')}; the others would make the page too large."
    return {
        "experiment": experiment,
        "numRows": len(kept),
        "notice": notice if len(kept) < len(records) else "",
        "columns": [_column(name, [record.get(name) for record in kept]) for name in _columns(kept)],
    }


def _columns(records: Sequence[Record]) -> list[str]:
    """The scalar fields in the order of reading; a field that holds one and the same nothing is dropped."""
    found: dict[str, bool] = {}
    for record in records:
        for name, value in record.items():
            if name not in _HIDDEN and not isinstance(value, list | tuple | Mapping):
                found[name] = found.get(name, False) or value is not None
    names = [name for name, filled in found.items() if filled]
    first = [name for name in _FIRST if name in names]
    last = [name for name in _LAST if name in names]
    middle = [name for name in names if name not in first and name not in last]
    return [*first, *middle[:_MOST_COLUMNS], *last]


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    if all(value is None or real(value) for value in values):
        return {"name": name, "numbers": short(math.nan if value is None else value for value in values)}
    texts = ["" if value is None or isinstance(value, list | tuple | Mapping) else str(value) for value in values]
    words = {word: place for place, word in enumerate(dict.fromkeys(texts))}
    return {"name": name, "words": list(words), "codes": [words[text] for text in texts]}
