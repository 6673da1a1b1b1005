"""From run folders to what a reader wants to know: curves, gains with intervals, and plain sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from quietnn.methods import CLEAN, REFERENCE, is_oracle
from quietnn.records import Record
from quietnn.records.schema import TRAINING
from quietnn.reports.curves import Curve, at_mean_wnr, clean_merit, curves
from quietnn.reports.gains import CONFIDENCE, Gain, crossing, gain_db
from quietnn.reports.quantities import ACCURACY, Quantity, percent, quantity_of, with_accuracy
from quietnn.reports.runs import Run, grouped, inference_records, with_distinct_names
from quietnn.reports.tables import Table, accuracy_table, cost_table, gain_table, interval_text

CHANCE = 0.1
"""The accuracy that a run of training counts with in a curve when it diverged: ten classes, guessed."""


@dataclass(frozen=True, eq=False)
class TaskAnalysis:
    """One task's curves in the order of tables, and what each gains over ML in the same run at a `level`.

    `level` is an accuracy, or the merit of another `quantity`. `clean` is the merit without noise and the number of
    test examples. Each curve has the ML curve that it is compared with, if there is one, and its gain; ML itself has
    none. `best` is the place of the curve that gains most, oracles aside.
    """

    task: str
    level: float
    records: tuple[Record, ...]
    clean: tuple[float, int] | None
    curves: tuple[Curve, ...]
    references: tuple[Curve | None, ...]
    gains: tuple[Gain | None, ...]
    best: int | None
    quantity: Quantity = ACCURACY


@dataclass(frozen=True, eq=False)
class Analysis:
    """Several runs read together: the noisy inference of each task, and its noisy training."""

    runs: tuple[Run, ...]
    tasks: tuple[TaskAnalysis, ...]
    trained: tuple[TaskAnalysis, ...]


def analyse_runs(runs: Sequence[Run], *, level: float | None = None, num_resamples: int = 10_000) -> Analysis:
    """Measure the noisy inference and training of runs, every method against ML.

    Gains are read at an accuracy, by default 0.75 for SST-2 and 0.6 for the rest, as in the paper, with so many
    bootstrap resamples for each interval. For language models the level is a factor on the perplexity without noise,
    by default 1.5; for another score it is that score, by default half-way down from the one without noise.
    """
    runs = with_distinct_names(runs)
    named = {run.name: str(run.config.get("task") or "unnamed task") for run in runs}
    records = [record for run in runs for record in run.records]
    by_task = grouped(inference_records(records), lambda record: str(record.get("task") or named[record["run"]]))
    tasks = (analyse_task(task, found, level, num_resamples) for task, found in by_task.items())
    return Analysis(runs, tuple(tasks), training_analyses(records, level=level, num_resamples=num_resamples))


def training_analyses(
    records: Sequence[Record], *, level: float | None = None, num_resamples: int = 10_000
) -> tuple[TaskAnalysis, ...]:
    """The trained networks of each task among records of any experiment, measured as in noisy inference.

    The accuracy without noise is a mean over seeds. A run that diverged counts as `CHANCE`. Without a level, gains are
    read at an accuracy that ML reaches only at high WNR: 85 % of the way from chance to the accuracy without noise.
    """
    trained = [record for record in records if record.get("experiment") == TRAINING]
    filled = [one if one.get("accuracy") is not None else {**one, "accuracy": CHANCE} for one in trained]
    tasks = []
    for task, found in grouped(filled, lambda record: str(record.get("task", "unnamed task"))).items():
        accuracies = [float(record["accuracy"]) for record in found if record["method"] == CLEAN]
        clean = float(np.mean(accuracies)) if accuracies else None
        aim = round(CHANCE + 0.85 * ((clean or 0.6) - CHANCE), 2) if level is None else level
        analysis = analyse_task(task, found, aim, num_resamples)
        tasks.append(replace(analysis, clean=None if clean is None else (clean, 0)))
    return tuple(tasks)


def sentences(task: TaskAnalysis) -> list[str]:
    """What was found, in words: the result without noise, the gains, and every curve that never crosses."""
    quantity = task.quantity
    found = [] if task.clean is None else [f"Without noise: {quantity.clean(*task.clean, task.level)}."]
    for curve, reference, gain in zip(task.curves, task.references, task.gains, strict=True):
        at = crossing(curve, task.level)
        if at.wnr_db is None:
            found.append(f"{curve.label} {at.reason}.")
        elif gain is not None and gain.gain_db is not None and reference is not None:
            found.append(_gain_sentence(curve, reference, gain, gain.gain_db))
        elif gain is not None:
            found.append(f"{curve.label} holds {quantity.text(task.level)} down to {at.wnr_db:.2f} dB; {gain.note}.")
    if not any(curve.method == REFERENCE for curve in task.curves):
        found.append("No ML curve was measured, so there is nothing to measure gains against.")
    return found


def diverged_sentences(records: Sequence[Record]) -> list[str]:
    """A sentence for each run that diverged."""
    return [
        f"{record['method']} at {record['wnr_db']:g} dB, draw {record['draw']}, diverged in round "
        f"{record.get('diverged_round', '?')}; it counts as {percent(CHANCE)}."
        for record in records
        if record.get("status") == "diverged"
    ]


def task_tables(task: TaskAnalysis) -> dict[str, Table]:
    """Accuracy or its like, gains and cost of a task's methods, by the name of their file."""
    return {
        task.quantity.name: accuracy_table(task.curves, task.quantity),
        "gains": gain_table(task.curves, task.gains, task.level, task.quantity),
        "cost": cost_table(task.records),
    }


def to_json(analysis: Analysis) -> dict[str, Any]:
    """The numbers for another program; what does not exist is null, an open interval ends at "inf".

    The deviations of perplexities are those of their losses.
    """
    tasks = [
        {
            "task": task.task,
            "level": task.quantity.number(task.level),
            f"clean_{task.quantity.name}": task.quantity.number(task.clean[0]) if task.clean else None,
            "sentences": sentences(task),
            "curves": [_curve_json(*pair, task.level) for pair in zip(task.curves, task.gains, strict=True)],
        }
        for task in analysis.tasks
    ]
    runs = [{"name": run.name, "folder": str(run.folder), "config": run.config} for run in analysis.runs]
    return {"runs": runs, "tasks": tasks}


def analyse_task(task: str, records: Sequence[Record], level: float | None, num_resamples: int) -> TaskAnalysis:
    """The curves of one task's records and what each gains over ML; see `analyse_runs`."""
    quantity = quantity_of(records)
    records = at_mean_wnr(with_accuracy(records) or records)
    found, clean = curves(records, quantity), clean_merit(records, quantity)
    means = [float(mean) for curve in found for mean in curve.mean if np.isfinite(mean)]
    level = quantity.level(task, level, clean[0] if clean else None, means)
    references = tuple(_reference(curve, found) for curve in found)
    gains = tuple(
        None
        if reference is None or curve is reference
        else gain_db(curve, reference, level, num_resamples=num_resamples)
        for curve, reference in zip(found, references, strict=True)
    )
    ranked = [
        (gain.gain_db, -place)
        for place, (curve, gain) in enumerate(zip(found, gains, strict=True))
        if gain is not None and gain.gain_db is not None and gain.gain_db > 0 and not is_oracle(curve.method)
    ]
    best = -max(ranked)[1] if ranked else None
    return TaskAnalysis(task, level, tuple(records), clean, found, references, gains, best, quantity)


def _reference(curve: Curve, found: Sequence[Curve]) -> Curve | None:
    """The ML curve of the same run, else the only one there is."""
    candidates = [other for other in found if other.method == REFERENCE]
    same = [other for other in candidates if set(other.runs) & set(curve.runs)]
    return next(iter(same or candidates), None) if same or len(candidates) == 1 else None


def _gain_sentence(curve: Curve, reference: Curve, gain: Gain, decibels: float) -> str:
    more = "less" if decibels >= 0 else "more"
    interval = f", {percent(CONFIDENCE)} interval {interval_text(gain)}" if gain.low is not None else ""
    oracle = " It was tuned on test data, so it is a bound and not a result." if is_oracle(curve.method) else ""
    draws = "one draw" if gain.num_draws == 1 else f"{gain.num_draws} draws"
    note = f"; {gain.note}" if gain.note else ""
    return (
        f"{curve.label} holds {curve.quantity.text(gain.level)} with {abs(decibels):.2f} dB {more} WNR than "
        f"{reference.label} (gain {decibels:+.2f} dB{interval}, {draws}{note}).{oracle}"
    )


def _curve_json(curve: Curve, gain: Gain | None, level: float) -> dict[str, Any]:
    at = crossing(curve, level)
    number = curve.quantity.number
    return {
        "method": curve.method,
        "label": curve.label,
        "runs": list(curve.runs),
        "num_draws": curve.num_draws,
        "wnr_db": curve.wnr_db.tolist(),
        "mean": [float(number(value)) if np.isfinite(value) else None for value in curve.mean],
        "std": [float(value) if np.isfinite(value) else None for value in curve.std],
        "counts": curve.counts.tolist(),
        "crossing_db": at.wnr_db,
        "crossing_note": at.reason,
        "gain": None if gain is None else asdict(gain) | {"level": number(level)},
    }
