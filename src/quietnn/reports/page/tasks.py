"""What the page shows of a task: curves with their gains, searched surfaces, layers, and rounds of training."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from quietnn.methods import CLEAN, is_oracle, rank, style_of
from quietnn.records import Record
from quietnn.reports.accuracy_figures import by_round
from quietnn.reports.analysis import TaskAnalysis, diverged_sentences, sentences, task_tables
from quietnn.reports.curves import Curve
from quietnn.reports.figures import looks
from quietnn.reports.gains import Gain, crossing
from quietnn.reports.page.advice import advice, headline, interval_name
from quietnn.reports.page.tables import short, table_payload
from quietnn.reports.runs import grouped
from quietnn.reports.tables import cost_table, interval_text
from quietnn.reports.temperature_figures import layer_values, pole_of, tried_records, tuned_records
from quietnn.reports.titles import counted, listed, over_channels, task_title, wnr_axis
from quietnn.units import db_to_ratio

MOST_DRAWN = 20_000
"""Single results that a task's chart offers to draw as dots; above it they would be a smear and megabytes."""


_GREY = {"colour": "#888888", "marker": None, "dash": "-", "hollow": False}


def task_payload(task: TaskAnalysis, *, most_trials: int) -> dict[str, Any]:
    """One task as the page wants it; points of surfaces above `most_trials` are left out and that is said."""
    surfaces, left_out = _surfaces(task.records, most_trials)
    top = headline(task)
    return {
        "name": task.task,
        "title": over_channels(task_title(task.task), task.records),
        "axis": wnr_axis(task.records),
        "quantity": {"name": task.quantity.name, "axis": task.quantity.axis, "better": task.quantity.better},
        "level": task.level,
        "clean": list(task.clean) if task.clean else None,
        "headline": top,
        "advice": advice(task),
        "sentences": sentences(task),
        "notices": [*_missing(task.curves), *_gave_up(task.records), *left_out],
        "best": task.best if top is None or top["place"] is None else top["place"],
        "curves": _curves(task),
        "tables": {name: table_payload(table) for name, table in task_tables(task).items()},
        "surfaces": surfaces,
        "layers": _layers(task.records),
    }


def _curves(task: TaskAnalysis) -> list[dict[str, Any]]:
    dots = sum(curve.merits.size for curve in task.curves) <= MOST_DRAWN
    found = []
    rows = zip(task.curves, task.gains, task.references, looks([curve.method for curve in task.curves]), strict=True)
    for curve, gain, reference, look in rows:
        at = crossing(curve, task.level)
        found.append(
            {
                "method": curve.method,
                "label": curve.label,
                **look,
                "oracle": is_oracle(curve.method),
                "numDraws": curve.num_draws,
                "x": short(curve.wnr_db),
                "mean": short(curve.mean),
                "std": short(curve.std),
                "count": curve.counts.tolist(),
                "draws": [short(row) for row in curve.merits] if dots else None,
                "crossing": at.wnr_db,
                "crossingNote": at.reason,
                "reference": None if reference is None else task.curves.index(reference),
                "gain": None if gain is None else _gain(gain),
            }
        )
    return found


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        "db": gain.gain_db,
        "low": None if gain.low is None else short([gain.low])[0],
        "high": None if gain.high is None else short([gain.high])[0],
        "above": gain.above,
        "interval": interval_text(gain),
        "intervalName": interval_name(gain),
        "numDraws": gain.num_draws,
        "note": gain.note,
    }


def _missing(curves: Sequence[Curve]) -> list[str]:
    """What a reader would look for in vain: WNRs that one curve lacks, draws that another has, bands of one draw."""
    wnrs = sorted({float(wnr) for curve in curves for wnr in curve.wnr_db})
    lacking: dict[str, list[str]] = defaultdict(list)
    fewer: dict[tuple[int, int], list[str]] = defaultdict(list)
    for curve in curves:
        absent = ", ".join(f"{wnr:g}" for wnr in wnrs if wnr not in curve.wnr_db)
        if absent:
            lacking[absent].append(curve.label)
        if curve.counts.min() < curve.num_draws:
            fewer[int(curve.counts.min()), curve.num_draws].append(curve.label)
    said = [
        f"{listed(labels)} {'was' if len(labels) == 1 else 'were'} not measured at {absent} dB."
        for absent, labels in lacking.items()
    ]
    said += [
        f"{listed(labels)} {'has' if len(labels) == 1 else 'have'} only {least} of {most} draws at some WNRs."
        for (least, most), labels in fewer.items()
    ]
    single = [curve.label for curve in curves if curve.num_draws == 1]
    if single:
        who = "Every curve" if len(single) == len(curves) else ", ".join(single)
        said.append(f"{who} rests on one noise draw, so there is no band and no interval.")
    return said


def _gave_up(records: Sequence[Record]) -> list[str]:
    """Methods that gave up somewhere, so that the received weights stand in for their result."""
    failed = grouped((record for record in records if record.get("failed")), lambda record: str(record["method"]))
    return [
        f"{style_of(method).label} gave up in {counted(len(found), 'result')}, where the received weights stand "
        f"in for it: {found[0]['failed']}"
        for method, found in failed.items()
    ]


def _surfaces(records: Sequence[Record], most_trials: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Every searched surface, draw by draw, as long as there is room."""
    tried = tried_records(records)
    tried.sort(key=lambda record: (int(record["draw"]), int(record.get("seed") or 0)))
    kept: list[dict[str, Any]] = []
    room = most_trials
    for record in tried:
        room -= len(record["trials"])
        if room < 0:
            break
        kept.append(_surface(record))
    if not (left_out := len(tried) - len(kept)):
        return kept, []
    surfaces = counted(left_out, "searched surface")
    return kept, [f"{surfaces} of {len(tried):,} left out to keep the page small; see the records."]


def _surface(record: Record) -> dict[str, Any]:
    columns = zip(*([*trial, None, None][:4] for trial in record["trials"]), strict=True)
    chosen = record.get("lambda_prime")
    return {
        **_place(record),
        "pole": pole_of(record),
        "misjudged": record.get("noise_variance") != record.get("assumed_noise_variance"),
        "chosen": None if chosen is None else [float(chosen), float(record.get("beta") or 0.0)],
        "tuning": record.get("tuning_accuracy"),
        "accuracy": record["accuracy"],
        "numTest": record.get("num_test_examples"),
        "trials": [short([math.nan if cell is None else cell for cell in column]) for column in columns],
    }


def _place(record: Record) -> dict[str, Any]:
    method = record["method"]
    return {
        "method": method,
        "label": style_of(method).label,
        "oracle": is_oracle(method),
        "run": str(record.get("run", "")),
        "kappa": int(record.get("num_tuning_examples") or 0),
        "wnr": float(record["wnr_db"]),
        "draw": int(record["draw"]),
    }


def _layers(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The temperatures of layers: an entry for each method, run, tuning size and WNR, all draws inside."""
    key = itemgetter("method", "run", "kappa", "wnr")
    return [_layer_entry(found) for found in grouped(tuned_records(records), lambda one: key(_place(one))).values()]


def _layer_entry(records: Sequence[Record]) -> dict[str, Any]:
    names, found = layer_values(records)
    shown = {name: [short(draw) for draw in draws] for name, draws in found.items()}
    place = _place(records[0])
    poles = [_mean_pole(column) for column in zip(*shown["wnrs"], strict=True)]
    draws = [int(record["draw"]) for record in records]
    return {**place, **looks([place["method"]])[0], "names": names, "draws": draws, **shown, "poles": short(poles)}


def _mean_pole(wnrs: Sequence[Any]) -> float:
    """The mean over draws of `1 + eta` for one layer; NaN where no draw knows its WNR."""
    known = [1 + db_to_ratio(wnr) for wnr in wnrs if isinstance(wnr, int | float)]
    return float(np.mean(known)) if known else math.nan


def training_payload(task: TaskAnalysis) -> dict[str, Any]:
    """What `task_payload` says of the trained networks of a task, and the curves of their rounds."""
    records = task.records
    payload = task_payload(task, most_trials=0)
    cost = replace(cost_table(records), caption="Mean cost of one federation, training included")
    payload["tables"]["cost"] = table_payload(cost)
    labelled = [{**record, "method": style_of(record["method"]).label} for record in records]
    num_rounds = max((max(record.get("tested_rounds") or [0]) for record in records), default=0)
    seeds = counted(len({record.get("seed") for record in records}), "seed")
    return {
        **payload,
        "advice": advice(task, by_need=False),
        "lead": f"{counted(len({r['method'] for r in records} - {CLEAN}), 'scheme')}, {seeds}, {num_rounds} rounds.",
        "notices": [*payload["notices"], *diverged_sentences(labelled)],
        "series": list(_series(records)),
    }


def _series(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """For every run, scheme and WNR the mean accuracy over seeds, round by round."""
    tested = [record for record in records if record.get("tested_rounds")]
    groups = grouped(tested, lambda one: (str(one["method"]), str(one.get("run", "")), float(one["wnr_db"])))
    several_runs = len({record.get("run") for record in records}) > 1
    schemes = sorted({key[:2] for key in groups}, key=lambda key: (rank(key[0]), key))
    styles = dict(zip(schemes, looks([method for method, _ in schemes]), strict=True))
    for key in sorted(groups, key=lambda key: (schemes.index(key[:2]), key[2])):
        method, run, wnr_db = key
        found = by_round(groups[key])
        name = "no noise" if method == CLEAN else style_of(method).label
        yield {
            "label": name + (f" ({run})" if several_runs else ""),
            "oracle": is_oracle(method),
            **(_GREY if method == CLEAN else styles[method, run]),
            "wnr": short([wnr_db])[0],
            "x": list(found),
            "mean": short(float(np.mean(values)) for values in found.values()),
            "std": short(float(np.std(values, ddof=1)) if len(values) > 1 else math.nan for values in found.values()),
            "count": [len(values) for values in found.values()],
        }
