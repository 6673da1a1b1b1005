"""What the page shows of noisy training: accuracy against the round, and its end against the WNR."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from quietnn.records import Record
from quietnn.reports.methods import is_oracle, rank, style_of
from quietnn.reports.page.inference import looks
from quietnn.reports.page.numbers import short
from quietnn.reports.titles import counted, task_title

EXPERIMENT = "noisy_training"


def training_payload(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A task each: for every scheme and WNR the mean accuracy over seeds, round by round."""
    grouped: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.get("experiment") == EXPERIMENT and _usable(record):
            grouped[str(record.get("task", "unnamed task"))].append(record)
    return [_task(task, found) for task, found in grouped.items()]


def scheme_of(record: Record) -> str:
    """How the receiver chose its denoiser: the scheme, else the method."""
    return str(record.get("scheme") or record.get("method") or "unnamed")


def _usable(record: Record) -> bool:
    return all(isinstance(record.get(name), int | float) for name in ("round", "accuracy", "wnr_db"))


def _task(task: str, records: Sequence[Record]) -> dict[str, Any]:
    runs = {str(record.get("run", "")) for record in records}
    cells: dict[tuple[str, str, float], dict[int, dict[Any, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        key = scheme_of(record), str(record.get("run", "")), float(record["wnr_db"])
        cells[key][int(record["round"])][record.get("seed")] = float(record["accuracy"])
    schemes = sorted({key[:2] for key in cells}, key=lambda key: (rank(key[0]), key))
    styles = dict(zip(schemes, looks([scheme for scheme, _ in schemes]), strict=True))
    series = [
        {
            "label": style_of(key[0]).label + (f" ({key[1]})" if len(runs) > 1 else ""),
            "oracle": is_oracle(key[0]),
            **styles[key[:2]],
            "scheme": schemes.index(key[:2]),
            "wnr": short([key[2]])[0],
            **_over_rounds(cells[key]),
        }
        for key in sorted(cells, key=lambda key: (schemes.index(key[:2]), key[2]))
    ]
    seeds = {record.get("seed") for record in records}
    notice = "One seed only, so there is no band." if len(seeds) == 1 else ""
    return {
        "name": task,
        "title": task_title(task),
        "series": series,
        "notices": [notice] if notice else [],
        "lead": f"{counted(len(schemes), 'scheme')}, {counted(len(seeds), 'seed')}.",
    }


def _over_rounds(rounds: dict[int, dict[Any, float]]) -> dict[str, Any]:
    order = sorted(rounds)
    values = [list(rounds[at].values()) for at in order]
    return {
        "x": order,
        "mean": short(float(np.mean(found)) for found in values),
        "std": short(float(np.std(found, ddof=1)) if len(found) > 1 else math.nan for found in values),
        "count": [len(found) for found in values],
    }
