"""Reports on the disk: summary, tables, figures and page, all drawn before the first file is written."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from quietnn.errors import MissingData, unknown_choice
from quietnn.files import write_together
from quietnn.methods import CLEAN
from quietnn.records import RECORDS, Record, read
from quietnn.records.schema import THEORY
from quietnn.reports.accuracy_figures import accuracy_figure, deployment_figure, rounds_figure
from quietnn.reports.analysis import (
    Analysis,
    TaskAnalysis,
    analyse_runs,
    diverged_sentences,
    sentences,
    task_tables,
    training_analyses,
)
from quietnn.reports.figures import Figure, images
from quietnn.reports.gains import crossing
from quietnn.reports.page.document import render_report
from quietnn.reports.runs import Run
from quietnn.reports.tables import Table, mean_costs, to_csv, to_latex, to_markdown
from quietnn.reports.temperature_figures import layer_records, layers_figure, surface_figure, surface_records
from quietnn.reports.theory_figures import theory_figures

FORMATS = ("pdf", "svg", "png")


def write_analysis(
    analysis: Analysis, out: Path, *, date: str = "", command: str = "", style: str = "screen"
) -> tuple[Path, ...]:
    """Write everything a reader wants into a folder, and return the paths.

    `summary.md`, `tables.tex`, `accuracy.csv`, `gains.csv`, `accuracy.png`, `.svg`, `surface.*` if a search kept its
    trials, `layers.*` if layers were tuned, and `report.html` with all of it. Several tasks put their name in the
    file names; perplexity or a score goes by its own. Without a date, the same records give the same files.
    """
    facts = run_facts(analysis) | {name: value for name, value in (("command", command), ("date", date)) if value}
    tables = [task_tables(task) for task in analysis.tasks]
    files: dict[str, bytes] = {"summary.md": _summary(analysis, tables, facts).encode()}
    files["tables.tex"] = "\n\n".join(to_latex(table) for one in tables for table in one.values()).encode() + b"\n"
    for task, found in zip(analysis.tasks, tables, strict=True):
        suffix = _suffix(analysis, task)
        files |= {f"{name}{suffix}.csv": to_csv(table).encode() for name, table in found.items()}
        for name, figure in task_figures(task, style=style).items():
            files |= images(f"{name}{suffix}", figure)
    if len(tables) > 1:
        names = dict.fromkeys(task.quantity.name for task in analysis.tasks)
        files |= images("-and-".join(names), accuracy_figure(analysis.tasks, style=style))
    files["report.html"] = render_report(analysis, written=date, command=command).encode()
    write_together(out, files)
    return tuple(out / name for name in files)


def write_federated_report(folder: Path, *, level: float | None = None, style: str = "screen") -> list[str]:
    """Write `summary.md`, tables and figures beside the records, and return what they say in sentences.

    A folder without records of noisy training gets nothing and says nothing.
    """
    tasks = training_analyses(read(folder / RECORDS), level=level)
    if not tasks:
        return []
    task = tasks[0]  # a run has one
    said = [*sentences(task), *diverged_sentences(task.records)]
    tables = {name: table for name, table in task_tables(task).items() if name != "cost"}
    shown = map(to_markdown, [*tables.values(), *_fixed(task.records), _cost(task.records)])
    summary = ["# Noisy training", "\n".join(f"- {line}" for line in said), *shown]
    files = {"summary.md": ("\n\n".join(summary) + "\n").encode()}
    files |= {f"{name}.csv": to_csv(table).encode() for name, table in tables.items()}
    files |= images("accuracy", accuracy_figure([task], style=style))
    files |= images("rounds", rounds_figure(task.records))
    if any(record.get("deployed_wnr_db") for record in task.records):
        files |= images("deployed", deployment_figure(task.records))
    write_together(folder, files)
    return said


def publication_figures(runs: Sequence[Run], *, style: str = "paper", level: float | None = None) -> dict[str, Figure]:
    """Every figure that the records of some runs allow, by the name of its file; there must be one."""
    found: dict[str, Figure] = {}
    analysis = analyse_runs(runs, level=level)
    for task in analysis.tasks:
        if task.curves:
            suffix = _suffix(analysis, task)
            found |= {f"{name}{suffix}": figure for name, figure in task_figures(task, style=style).items()}
    for task in analysis.trained:
        if task.curves:
            found[f"training-{slug(task.task)}"] = accuracy_figure([task], style=style)
        if any(record.get("tested_rounds") for record in task.records):
            found[f"rounds-{slug(task.task)}"] = rounds_figure(task.records, style=style)
    theory = [record for run in runs for record in run.records if record.get("experiment") == THEORY]
    if theory:
        found |= theory_figures(theory, style=style)
    if not found:
        where = ", ".join(str(run.folder) for run in runs)
        raise MissingData(f"the records in {where} allow no figure; give runs of a sweep or of the theory checks")
    return found


def write_figures(figures: dict[str, Figure], out: Path, *, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write each figure in each format; returns the paths."""
    for kind in formats:
        if kind not in FORMATS:
            raise unknown_choice("figure format", kind, FORMATS)
    files: dict[str, bytes] = {}
    for name, figure in figures.items():
        files |= images(name, figure, formats)
    write_together(out, files)
    return tuple(out / name for name in files)


def task_figures(task: TaskAnalysis, *, style: str = "screen") -> dict[str, Figure]:
    """`accuracy` or its like, `surface` if a search kept its trials, `layers` if layers were tuned.

    The last two are taken at the WNR where ML falls below the level: there the temperatures matter most.
    """
    found = {task.quantity.name: accuracy_figure([task], style=style)}
    falls = [crossing(reference, task.level).wnr_db for reference in task.references if reference is not None]
    steepest = falls[0] if falls else None
    if surfaces := surface_records(task.records, wnr_db=steepest):
        found["surface"] = surface_figure(surfaces, style=style)
    if layers := layer_records(task.records, wnr_db=steepest):
        found["layers"] = layers_figure(layers, style=style)
    return found


def run_facts(analysis: Analysis) -> dict[str, str]:
    """What ran, for the summary: runs, seeds, draws, sizes, version."""
    records = [record for run in analysis.runs for record in run.records]
    noisy = [record for record in records if record["method"] != CLEAN]

    def all_of(field: str) -> str:
        return _join({record[field] for record in noisy or records if record.get(field) is not None})

    facts = {
        "run": ", ".join(run.name for run in analysis.runs),
        "task": ", ".join(task.task for task in analysis.tasks),
        "channel": all_of("channel"),
        "set to": all_of("level"),
        "noise draws": str(len({(record.get("seed"), record.get("draw")) for record in noisy})),
        "seeds": all_of("seed"),
        "WNR (dB)": all_of("wnr_db"),
        "tuning examples": all_of("num_tuning_examples"),
        "test examples": all_of("num_test_examples"),
        "results": f"{len(records):,}",
        "quietnn": all_of("version"),
        "configuration": all_of("config"),
    }
    return {name: value for name, value in facts.items() if value}


def slug(name: str) -> str:
    """A name as part of a file's name: `cifar10-resnet20`."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "task"


def _suffix(analysis: Analysis, task: TaskAnalysis) -> str:
    return "" if len(analysis.tasks) == 1 else "-" + slug(task.task)


def _summary(analysis: Analysis, tables: list[dict[str, Table]], facts: dict[str, str]) -> str:
    parts = []
    for task, found in zip(analysis.tasks, tables, strict=True):
        channels = _join({record["channel"] for record in task.records if "channel" in record})
        parts.append(f"## {_plain(task.task + (f' over {channels}' if channels else ''))}")
        parts.append("\n".join(f"- {_plain(line)}" for line in sentences(task)))
        parts += [to_markdown(table) for table in found.values()]
    table = Table("What ran", ("", "value"), tuple(facts.items()))
    return "\n\n".join(["# Noisy inference", *parts, to_markdown(table)]) + "\n"


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


def _plain(text: str) -> str:
    """Text from a record in Markdown: on one line, and never read as a tag."""
    return text.replace("<", "&lt;").replace("\n", " ")


def _join(values: Iterable[Any]) -> str:
    numbers = sorted(values, key=lambda value: (isinstance(value, str), value))
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in numbers)
