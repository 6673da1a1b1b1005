"""How much of what a run planned is there, and what is not."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from quietnn.records import Record
from quietnn.reports.methods import style_of
from quietnn.reports.runs import EXPERIMENT, Run
from quietnn.reports.titles import counted


def planned_cells(run: Run) -> set[tuple[Any, ...]] | None:
    """The `(wnr_db, draw, method)` that a sweep's configuration asks for; None if it does not say."""
    config = run.config
    wnrs, methods, num_draws = config.get("wnr_db"), config.get("methods"), config.get("num_draws")
    if not isinstance(wnrs, list) or not isinstance(methods, list) or not isinstance(num_draws, int):
        return None
    cells = {(_wnr(wnr), draw, str(method)) for wnr in wnrs for draw in range(num_draws) for method in methods}
    return cells | {(math.inf, 0, "clean")}


def measured_cells(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """The cells that the records hold."""
    return {
        (_wnr(record.get("wnr_db")), record.get("draw"), record.get("method"))
        for record in records
        if record.get("experiment", EXPERIMENT) == EXPERIMENT
    }


def missing_sentence(run: Run) -> str:
    """What was planned and is not there, in words; empty if all of it is, or if nothing says what was planned."""
    planned = planned_cells(run)
    if planned is None:
        return ""
    missing = planned - measured_cells(run.records)
    if not missing:
        return ""
    by_method = Counter(str(method) for _, _, method in missing)
    names = ", ".join(f"{style_of(method).label} ({count})" for method, count in sorted(by_method.items()))
    planned_number = counted(len(planned), "planned result")
    return f"{run.name}: {len(missing):,} of {planned_number} are not there yet: {names}."


def _wnr(value: Any) -> float:
    return float(value) if isinstance(value, int | float | str) else math.nan
