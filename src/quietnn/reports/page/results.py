"""Every record as a row of a table, stored by column so that a hundred thousand of them stay small."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quietnn.records import Record
from quietnn.records.schema import experiment_of
from quietnn.reports.page.numbers import short
from quietnn.reports.titles import counted

_FIRST = ("run", "task", "method", "scheme", "wnr_db", "round", "draw", "seed", "accuracy", "loss")
_LAST = ("config", "version")
_HIDDEN = {"experiment"}
_MOST_COLUMNS = 40


def results_payload(records: Sequence[Record], *, most_rows: int) -> list[dict[str, Any]]:
    """A table for each kind of experiment: columns of numbers, or of words with each word kept once.

    Lists and mappings inside a record (surfaces, layers) have figures of their own and are left out here.
    """
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(experiment_of(record) or "evaluation", []).append(record)
    return [_table(name, found, most_rows) for name, found in grouped.items()]


def _table(experiment: str, records: Sequence[Record], most_rows: int) -> dict[str, Any]:
    kept = records[:most_rows]
    names = _columns(kept)
    left_out = len(records) - len(kept)
    notice = f"The first {len(kept):,} of {counted(len(records), 'record')}; the others would make the page too large."
    return {
        "experiment": experiment,
        "numRows": len(kept),
        "notice": notice if left_out else "",
        "columns": [_column(name, [record.get(name) for record in kept]) for name in names],
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
    numeric = all(value is None or _is_number(value) for value in values)
    if numeric:
        return {"name": name, "numbers": short(math.nan if value is None else value for value in values)}
    texts = ["" if value is None or isinstance(value, list | tuple | Mapping) else str(value) for value in values]
    words = {word: place for place, word in enumerate(dict.fromkeys(texts))}
    return {"name": name, "words": list(words), "codes": [words[text] for text in texts]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
