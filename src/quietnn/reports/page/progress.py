"""How much of what a run planned is there, and what is not."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from quietnn.methods import CLEAN, style_of
from quietnn.records import MOST_RECORDS, Record
from quietnn.records.schema import experiment_of
from quietnn.reports.runs import EXPERIMENT, Run
from quietnn.reports.titles import counted

SELECTION_DRAW = -1
"""The draw under which a federation records the candidates for fixed temperatures."""

_PLANNED = (EXPERIMENT, "noisy_training")


def planned_cells(run: Run) -> set[tuple[Any, ...]] | None:
    """The `(wnr_db, draw, method)` that a configuration asks for; None if it does not say.

    A channel that is set by something else has its level (bits, seconds) in the place of the WNR.
    A federation, which is known by its rounds, is trained without noise in every draw, and chooses fixed temperatures
    among candidates in a draw of its own.
    """
    config = run.config
    wnrs, methods = config.get("wnr_db") or config.get("levels"), config.get("methods")
    num_draws = config.get("num_draws")
    if not isinstance(wnrs, list) or not isinstance(methods, list) or not isinstance(num_draws, int):
        return None
    if len(wnrs) * len(methods) * num_draws > MOST_RECORDS:
        return None
    cells = {(_wnr(wnr), draw, str(method)) for wnr in wnrs for draw in range(num_draws) for method in methods}
    if "num_rounds" not in config:
        return cells | {(math.inf, 0, CLEAN)}
    chosen = any("fixed" in str(method) for method in methods)
    candidates = config.get("fixed", ()) if chosen else ()
    cells |= {(_wnr(wnr), SELECTION_DRAW, str(text)) for wnr in wnrs for text in candidates}
    return cells | {(math.inf, draw, CLEAN) for draw in range(num_draws)}


def measured_cells(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """The cells that the records hold."""
    return {
        (_wnr(record.get("level", record.get("wnr_db"))), record.get("draw"), record.get("method"))
        for record in records
        if experiment_of(record).startswith(_PLANNED)
    }


def missing_sentence(run: Run) -> str:
    """What was planned and is not there, in words; empty if all of it is, or if nothing says what was planned."""
    planned = planned_cells(run)
    if planned is None:
        return ""
    missing = planned - measured_cells(run.records)
    if not missing:
        return ""
    by_name = Counter(
        "candidates for fixed temperatures" if draw == SELECTION_DRAW else style_of(str(method)).label
        for _, draw, method in missing
    )
    names = ", ".join(f"{name} ({count})" for name, count in sorted(by_name.items()))
    planned_number = counted(len(planned), "planned result")
    return f"{run.name}: {len(missing):,} of {planned_number} are not there yet: {names}."


def _wnr(value: Any) -> float:
    return float(value) if isinstance(value, int | float | str) else math.nan
