"""The figures of a run as files for a paper."""

from collections.abc import Sequence
from pathlib import Path

from quietnn.errors import MissingData, unknown_choice
from quietnn.files import write_together
from quietnn.reports.accuracy_figure import accuracy_figure
from quietnn.reports.federated_figures import rounds_figure
from quietnn.reports.figures import Figure, Style, to_pdf, to_png, to_svg
from quietnn.reports.page.payload import analyse_inference
from quietnn.reports.page.theory import EXPERIMENT as THEORY
from quietnn.reports.page.training import training_analyses
from quietnn.reports.runs import Run
from quietnn.reports.task_figures import accuracy_panel, task_figures
from quietnn.reports.theory_figures import theory_figures
from quietnn.reports.write import slug

FORMATS = ("pdf", "svg", "png")


def publication_figures(
    runs: Sequence[Run], *, style: Style = "paper", level: float | None = None
) -> dict[str, Figure]:
    """Every figure that the records of some runs allow, by the name of its file.

    Raises:
        MissingData: if the records allow none.
        InvalidConfig: for broken records, or theory records of which some are missing.
    """
    found: dict[str, Figure] = {}
    analysis = analyse_inference(runs, level=level)
    for task in analysis.tasks:
        suffix = "" if len(analysis.tasks) == 1 else "-" + slug(task.task)
        if task.curves:
            found |= {f"{name}{suffix}": figure for name, figure in task_figures(task, style=style).items()}
    records = [record for run in runs for record in run.records]
    for task in training_analyses(records, level=level):
        if task.curves:
            found[f"training-{slug(task.task)}"] = accuracy_figure([accuracy_panel(task)], style=style)
        if any(record.get("tested_rounds") for record in task.records):
            found[f"rounds-{slug(task.task)}"] = rounds_figure(task.records, style=style)
    theory = [record for record in records if record.get("experiment") == THEORY]
    if theory:
        found |= theory_figures(theory, style=style)
    if not found:
        where = ", ".join(str(run.folder) for run in runs)
        raise MissingData(f"the records in {where} allow no figure; give runs of a sweep or of the theory checks")
    return found


def write_figures(figures: dict[str, Figure], out: Path, *, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write each figure in each format, all drawn before the first file is written; returns the paths.

    Raises:
        InvalidConfig: for a format that does not exist.
    """
    for kind in formats:
        if kind not in FORMATS:
            raise unknown_choice("figure format", kind, FORMATS)
    files = {f"{name}.{kind}": _file(figure, kind) for name, figure in figures.items() for kind in formats}
    write_together(out, files)
    return tuple(out / name for name in files)


def _file(figure: Figure, kind: str) -> bytes:
    if kind == "svg":
        return to_svg(figure).encode()
    return to_pdf(figure) if kind == "pdf" else to_png(figure)
