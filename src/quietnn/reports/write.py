"""An analysis on the disk: summary, tables, figures and page, all drawn before the first file is written."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quietnn.files import write_together
from quietnn.reports.accuracy_figure import accuracy_figure
from quietnn.reports.analysis import CONFIDENCE, Analysis, TaskAnalysis, sentences
from quietnn.reports.figures import Figure, Style, to_png, to_svg
from quietnn.reports.page.document import render_analysis
from quietnn.reports.tables import Table, accuracy_table, cost_table, gain_table, to_csv, to_latex, to_markdown
from quietnn.reports.task_figures import accuracy_panel, task_figures


def write_analysis(
    analysis: Analysis, out: Path, *, date: str = "", command: str = "", style: Style = "screen"
) -> tuple[Path, ...]:
    """Write everything a reader wants into a folder, and return the paths.

    `summary.md`, `tables.tex`, `accuracy.csv`, `gains.csv`, `accuracy.png`, `.svg`, `surface.*` if a search kept its
    trials, `layers.*` if layers were tuned, and `report.html` with all of it. Several tasks put their name in the
    file names.

    Args:
        analysis: what to write.
        out: the folder, made if need be.
        date: when, as the caller tells it; left out if empty, so that the same records give the same files.
        command: what the user typed.
        style: how figures look.
    """
    facts = run_facts(analysis) | {name: value for name, value in (("command", command), ("date", date)) if value}
    tables = [_tables(task) for task in analysis.tasks]
    files: dict[str, bytes] = {"summary.md": _summary(analysis, tables, facts).encode()}
    files["tables.tex"] = "\n\n".join(to_latex(table) for one in tables for table in one.values()).encode() + b"\n"
    for task, found in zip(analysis.tasks, tables, strict=True):
        suffix = "" if len(tables) == 1 else "-" + slug(task.task)
        files |= {f"{name}{suffix}.csv": to_csv(table).encode() for name, table in found.items()}
        for name, figure in task_figures(task, style=style).items():
            files |= _images(f"{name}{suffix}", figure)
    if len(tables) > 1:
        files |= _images("accuracy", accuracy_figure([accuracy_panel(task) for task in analysis.tasks], style=style))
    files["report.html"] = render_analysis(analysis.runs, analysis, written=date, command=command).encode()
    write_together(out, files)
    return tuple(out / name for name in files)


def run_facts(analysis: Analysis) -> dict[str, str]:
    """What ran, for the summary: runs, seeds, draws, sizes, version."""
    records = [record for run in analysis.runs for record in run.records]
    noisy = [record for record in records if record["method"] != "clean"]

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
    """A name as part of a file's name.

    >>> slug("cifar10/resnet20")
    'cifar10-resnet20'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "task"


def _tables(task: TaskAnalysis) -> dict[str, Table]:
    return {
        "accuracy": accuracy_table(task.curves),
        "gains": gain_table(task.curves, task.gains, task.level, confidence=CONFIDENCE),
        "cost": cost_table(task.records),
    }


def _images(name: str, figure: Figure) -> dict[str, bytes]:
    return {f"{name}.png": to_png(figure), f"{name}.svg": to_svg(figure).encode()}


def _summary(analysis: Analysis, tables: list[dict[str, Table]], facts: dict[str, str]) -> str:
    parts = []
    for task, found in zip(analysis.tasks, tables, strict=True):
        channels = _join({record["channel"] for record in task.records if "channel" in record})
        parts.append(f"## {_plain(task.task + (f' over {channels}' if channels else ''))}")
        parts.append("\n".join(f"- {_plain(line)}" for line in sentences(task)))
        parts += [to_markdown(table) for table in found.values()]
    table = Table("What ran", ("", "value"), tuple(facts.items()))
    return "\n\n".join(["# Noisy inference", *parts, to_markdown(table)]) + "\n"


def _plain(text: str) -> str:
    """Text from a record in Markdown: on one line, and never read as a tag."""
    return text.replace("<", "&lt;").replace("\n", " ")


def _join(values: Iterable[Any]) -> str:
    numbers = sorted(values, key=lambda value: (isinstance(value, str), value))
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in numbers)
