"""What the page shows of noisy training: accuracy against the round, and the trained network's against the WNR."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quietnn.methods import CLEAN, is_oracle, rank, style_of
from quietnn.records import Record
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.federated_report import diverged_sentences, training_analyses
from quietnn.reports.figures import looks
from quietnn.reports.page.inference import task_payload
from quietnn.reports.page.tables import short, table_payload
from quietnn.reports.tables import cost_table
from quietnn.reports.titles import counted

_GREY = {"colour": "#888888", "marker": None, "dash": "-", "hollow": False}


def training_payload(
    records: Sequence[Record], *, level: float | None = None, num_resamples: int = 10_000
) -> list[dict[str, Any]]:
    """A task each: what `task_payload` says of the trained networks, and the curves of their rounds."""
    return [_task(task) for task in training_analyses(records, level=level, num_resamples=num_resamples)]


def _task(task: TaskAnalysis) -> dict[str, Any]:
    records = task.records
    payload = task_payload(task, most_trials=0)
    cost = replace(cost_table(records), caption="Mean cost of one federation, training included")
    payload["tables"]["cost"] = table_payload(cost)
    labelled = [{**record, "method": style_of(record["method"]).label} for record in records]
    num_rounds = max((max(record.get("tested_rounds") or [0]) for record in records), default=0)
    seeds = counted(len({record.get("seed") for record in records}), "seed")
    return {
        **payload,
        "lead": f"{counted(len({r['method'] for r in records} - {CLEAN}), 'scheme')}, {seeds}, {num_rounds} rounds.",
        "notices": [*payload["notices"], *diverged_sentences(labelled)],
        "series": list(_series(records)),
    }


def _series(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """For every run, scheme and WNR the mean accuracy over seeds, round by round."""
    runs = {str(record.get("run", "")) for record in records}
    cells: dict[tuple[str, str, float], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        rounds = zip(record.get("tested_rounds") or (), record.get("round_accuracy") or (), strict=True)
        for number, accuracy in rounds:
            cells[record["method"], str(record.get("run", "")), float(record["wnr_db"])][number].append(accuracy)
    schemes = sorted({key[:2] for key in cells}, key=lambda key: (rank(key[0]), key))
    styles = dict(zip(schemes, looks([method for method, _ in schemes]), strict=True))
    for key in sorted(cells, key=lambda key: (schemes.index(key[:2]), key[2])):
        name = "no noise" if key[0] == CLEAN else style_of(key[0]).label
        rounds_of = cells[key]
        values = [rounds_of[number] for number in sorted(rounds_of)]
        yield {
            "label": name + (f" ({key[1]})" if len(runs) > 1 else ""),
            "oracle": is_oracle(key[0]),
            **(_GREY if key[0] == CLEAN else styles[key[:2]]),
            "wnr": short([key[2]])[0],
            "x": sorted(rounds_of),
            "mean": short(float(np.mean(found)) for found in values),
            "std": short(float(np.std(found, ddof=1)) if len(found) > 1 else math.nan for found in values),
            "count": [len(found) for found in values],
        }
