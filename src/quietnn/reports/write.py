"""An analysis on the disk: summary, tables, figures and page, all drawn before the first file is written."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.analysis import CONFIDENCE, Analysis, TaskAnalysis, sentences
from quietnn.reports.figures import Figure, Style, to_png, to_svg, write_whole
from quietnn.reports.gains import crossing, percent
from quietnn.reports.layers_figure import layer_records, layers_figure
from quietnn.reports.page import PageSection, render_page
from quietnn.reports.surface_figure import surface_figure, surface_records
from quietnn.reports.tables import Table, accuracy_table, cost_table, gain_table, to_csv, to_latex, to_markdown


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
    drawn = [_figures(task, style) for task in analysis.tasks]
    sections = [_section(task, figures) for task, figures in zip(analysis.tasks, drawn, strict=True)]
    facts = run_facts(analysis) | {name: value for name, value in (("command", command), ("date", date)) if value}
    files: dict[str, bytes] = {"summary.md": _summary(sections, facts).encode()}
    files["tables.tex"] = "\n\n".join(to_latex(table) for one in sections for table in one.tables).encode() + b"\n"
    for task, section, figures in zip(analysis.tasks, sections, drawn, strict=True):
        suffix = "" if len(sections) == 1 else "-" + _slug(task.task)
        for name, table in zip(("accuracy", "gains", "cost"), section.tables, strict=True):
            files[f"{name}{suffix}.csv"] = to_csv(table).encode()
        for name, image in figures.items():
            files |= {f"{name}{suffix}.png": image.png, f"{name}{suffix}.svg": image.svg.encode()}
    if len(sections) > 1:
        both = _image(accuracy_figure([_panel(task) for task in analysis.tasks], style=style), "")
        files |= {"accuracy.png": both.png, "accuracy.svg": both.svg.encode()}
    title = "Noisy inference: " + ", ".join(dict.fromkeys(run.name for run in analysis.runs))
    page = render_page(title=title, sections=sections, facts=facts, details=_configs(analysis))
    files["report.html"] = page.encode()
    for name, content in files.items():
        write_whole(out / name, content)
    return tuple(out / name for name in files)


@dataclass(frozen=True)
class _Image:
    png: bytes
    svg: str
    caption: str


def run_facts(analysis: Analysis) -> dict[str, str]:
    """What ran, for the page and the summary: runs, seeds, draws, sizes, version."""
    records = [record for run in analysis.runs for record in run.records]
    noisy = [record for record in records if record["method"] != "clean"]

    def all_of(field: str) -> str:
        return _join({record[field] for record in noisy or records if record.get(field) is not None})

    facts = {
        "run": ", ".join(run.name for run in analysis.runs),
        "task": ", ".join(task.task for task in analysis.tasks),
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


def _section(task: TaskAnalysis, figures: dict[str, _Image]) -> PageSection:
    tables = (
        accuracy_table(task.curves),
        gain_table(task.curves, task.gains, task.level, confidence=CONFIDENCE),
        cost_table(task.records),
    )
    shown = [(image.svg, image.caption) for image in figures.values()]
    return PageSection(task.task, _headline(task), sentences(task), shown, tables)


def _headline(task: TaskAnalysis) -> tuple[str, str]:
    gain = None if task.best is None else task.gains[task.best]
    if task.best is None or gain is None:
        return "", ""
    meaning = f"{task.curves[task.best].label} over ML at {percent(task.level)} accuracy"
    return f"{gain.gain_db:+.1f} dB", meaning


def _figures(task: TaskAnalysis, style: Style) -> dict[str, _Image]:
    """Each figure that the records allow, by file name, with its caption."""
    caption = f"{task.task}: test accuracy against WNR; bands are ± one standard deviation over noise draws."
    found = {"accuracy": _image(accuracy_figure([_panel(task)], style=style), caption)}
    near = _steepest(task)
    if surfaces := surface_records(task.records, wnr_db=near):
        caption = "Accuracy over the temperatures on the examples tuned on; dots are the points tried."
        found["surface"] = _image(surface_figure(surfaces, style=style), caption)
    if layers := layer_records(task.records, wnr_db=near):
        caption = "The WNR of each layer and the temperatures chosen for it; small dots are draws, large ones means."
        found["layers"] = _image(layers_figure(layers, style=style), caption)
    return found


def _panel(task: TaskAnalysis) -> Panel:
    clean = task.clean[0] if task.clean else None
    if task.best is None:
        return Panel(task.task, task.curves, task.level, clean)
    return Panel(task.task, task.curves, task.level, clean, task.references[task.best], task.gains[task.best])


def _steepest(task: TaskAnalysis) -> float | None:
    """The WNR where ML falls below the level: there the temperatures matter most."""
    at = [crossing(reference, task.level).wnr_db for reference in task.references if reference is not None]
    return at[0] if at else None


def _image(figure: Figure, caption: str) -> _Image:
    return _Image(to_png(figure), to_svg(figure), caption)


def _summary(sections: list[PageSection], facts: dict[str, str]) -> str:
    parts = []
    for section in sections:
        parts.append(f"## {_plain(section.heading)}")
        parts.append("\n".join(f"- {_plain(line)}" for line in section.sentences))
        parts += [to_markdown(table) for table in section.tables]
    table = Table("What ran", ("", "value"), tuple(facts.items()))
    return "\n\n".join(["# Noisy inference", *parts, to_markdown(table)]) + "\n"


def _plain(text: str) -> str:
    """Text from a record in Markdown: on one line, and never read as a tag."""
    return text.replace("<", "&lt;").replace("\n", " ")


def _configs(analysis: Analysis) -> dict[str, str]:
    """Each configuration, one key to a line."""
    return {
        f"Configuration of {run.name}": "\n".join(f"{key} = {json.dumps(value)}" for key, value in run.config.items())
        for run in analysis.runs
        if run.config
    }


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "task"


def _join(values: Iterable[Any]) -> str:
    numbers = sorted(values, key=lambda value: (isinstance(value, str), value))
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in numbers)
