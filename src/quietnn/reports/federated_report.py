"""Records of noisy training to curves, gains in decibels, figures and a summary."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from quietnn.files import write_together
from quietnn.methods import CLEAN, is_oracle
from quietnn.records import RECORDS, Record, read
from quietnn.records.schema import TRAINING
from quietnn.reports.accuracy_figures import accuracy_figure, deployment_figure, rounds_figure
from quietnn.reports.analysis import TaskAnalysis, analyse_task, task_tables
from quietnn.reports.figures import Style, images
from quietnn.reports.gains import CONFIDENCE, crossing, percent
from quietnn.reports.tables import Table, interval_text, mean_costs, to_csv, to_markdown
from quietnn.reports.titles import counted

CHANCE = 0.1
"""The accuracy that a run counts with in a curve when it diverged: ten classes, guessed."""


def analyse_training(
    task: str, records: Sequence[Record], *, level: float | None = None, num_resamples: int = 10_000
) -> TaskAnalysis:
    """The trained networks of a task, measured as in noisy inference; without noise, a mean over seeds.

    A run that diverged counts as `CHANCE`. Without a level, gains are read at an accuracy that ML reaches only at high
    WNR: 85 % of the way from chance to the accuracy without noise.
    """
    filled = [record if record.get("accuracy") is not None else {**record, "accuracy": CHANCE} for record in records]
    accuracies = [float(record["accuracy"]) for record in filled if record["method"] == CLEAN]
    clean = float(np.mean(accuracies)) if accuracies else None
    aim = round(CHANCE + 0.85 * ((clean or 0.6) - CHANCE), 2) if level is None else level
    analysis = analyse_task(task, filled, aim, num_resamples)
    return replace(analysis, clean=None if clean is None else (clean, 0))


def training_analyses(
    records: Sequence[Record], *, level: float | None = None, num_resamples: int = 10_000
) -> list[TaskAnalysis]:
    """`analyse_training` of each task that is trained among records of any experiment."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        if record.get("experiment") == TRAINING:
            grouped.setdefault(str(record.get("task", "unnamed task")), []).append(record)
    return [analyse_training(task, mine, level=level, num_resamples=num_resamples) for task, mine in grouped.items()]


def federated_sentences(task: TaskAnalysis) -> list[str]:
    """What was found, in words: the accuracy without noise, what each scheme holds, and every run that diverged."""
    found = [] if task.clean is None else [f"Without noise: {100 * task.clean[0]:.1f} %."]
    for curve, gain in zip(task.curves, task.gains, strict=True):
        at = crossing(curve, task.level)
        if at.wnr_db is None:
            found.append(f"{curve.label} {at.reason}.")
            continue
        gained = ""
        if gain is not None and gain.gain_db is not None:
            interval = "" if gain.low is None else f", {percent(CONFIDENCE)} interval {interval_text(gain)}"
            note = f"; {gain.note}" if gain.note else ""
            seeds = counted(gain.num_draws, "seed")
            gained = f", a gain over ML of {gain.gain_db:+.1f} dB ({seeds}{interval}{note})"
        found.append(f"{curve.label} holds {percent(task.level)} down to {at.wnr_db:.1f} dB{gained}.")
    return [*found, *diverged_sentences(task.records)]


def diverged_sentences(records: Sequence[Record]) -> list[str]:
    """A sentence for each run that diverged."""
    return [
        f"{record['method']} at {record['wnr_db']:g} dB, draw {record['draw']}, diverged in round "
        f"{record.get('diverged_round', '?')}; it counts as {percent(CHANCE)}."
        for record in records
        if record.get("status") == "diverged"
    ]


def write_federated_report(folder: Path, *, level: float | None = None, style: Style = "screen") -> list[str]:
    """Write `summary.md`, tables and figures beside the records, and return what they say in sentences.

    A folder without records of noisy training gets nothing and says nothing.
    """
    found = [record for record in read(folder / RECORDS) if record.get("experiment") == TRAINING]
    if not found:
        return []
    task = analyse_training(str(found[0].get("task", "")), found, level=level)
    said = federated_sentences(task)
    tables = {name: table for name, table in task_tables(task).items() if name != "cost"}
    shown = map(to_markdown, [*tables.values(), *_fixed(task.records), _cost(task.records)])
    summary = ["# Noisy training", "\n".join(f"- {line}" for line in said), *shown]
    files = {"summary.md": ("\n\n".join(summary) + "\n").encode()}
    files |= {f"{name}.csv": to_csv(table).encode() for name, table in tables.items()}
    files |= images("accuracy", accuracy_figure([_with_least_loss(task)], style=style))
    files |= images("rounds", rounds_figure(task.records))
    if any(record.get("deployed_wnr_db") for record in task.records):
        files |= images("deployed", deployment_figure(task.records))
    write_together(folder, files)
    return said


def _with_least_loss(task: TaskAnalysis) -> TaskAnalysis:
    """Where no scheme gains, the one that loses least is marked."""
    gains = [
        (gain.gain_db, place)
        for place, (curve, gain) in enumerate(zip(task.curves, task.gains, strict=True))
        if gain is not None and gain.gain_db is not None and not is_oracle(curve.method)
    ]
    return replace(task, best=max(gains)[1]) if gains else task


def _fixed(records: Sequence[Record]) -> list[Table]:
    """A table of the temperatures that were fixed over a run, if any were."""
    fixed = sorted({(r["wnr_db"], r["method"], r["lambda_prime"], r["beta"]) for r in records if r.get("fixed")})
    rows = tuple(
        (f"{wnr:g} dB", method, f"{lambda_prime:.4f}", f"{beta:g}") for wnr, method, lambda_prime, beta in fixed
    )
    return [Table("Temperatures fixed over the run", ("WNR", "scheme", "λ′", "β"), rows)] if rows else []


def _cost(records: Sequence[Record]) -> Table:
    rows = [
        (method, str(num_runs), f"{passes:.0f}", f"{seconds:.0f}")
        for method, (num_runs, passes, seconds) in mean_costs(records).items()
    ]
    header = ("scheme", "runs", "passes over the tuning examples", "seconds")
    return Table("Mean cost of a run, training included, as the clock went", header, tuple(rows))
