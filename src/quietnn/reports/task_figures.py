"""Every figure that the records of one task allow, by the name of its file."""

from dataclasses import replace

from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.channels import level_ticks, over_channels, wnr_axis
from quietnn.reports.figures import Figure, Style
from quietnn.reports.gains import crossing
from quietnn.reports.layers_figure import layer_records, layers_figure
from quietnn.reports.surface_figure import surface_figure, surface_records


def task_figures(task: TaskAnalysis, *, style: Style = "screen") -> dict[str, Figure]:
    """`accuracy`, `surface` if a search kept its trials, `layers` if layers were tuned.

    The last two are taken at the WNR where ML falls below the level: there the temperatures matter most.
    """
    found = {"accuracy": accuracy_figure([accuracy_panel(task)], style=style)}
    near = _steepest(task)
    if surfaces := surface_records(task.records, wnr_db=near):
        found["surface"] = surface_figure(surfaces, style=style)
    if layers := layer_records(task.records, wnr_db=near):
        found["layers"] = layers_figure(layers, style=style)
    return found


def accuracy_panel(task: TaskAnalysis) -> Panel:
    """The task's curves with the largest gain marked, under the name of the channel."""
    clean = task.clean[0] if task.clean else None
    panel = Panel(
        over_channels(task.task, task.records),
        task.curves,
        task.level,
        clean,
        axis=wnr_axis(task.records),
        ticks=level_ticks(task.records),
    )
    if task.best is None:
        return panel
    return replace(panel, reference=task.references[task.best], gain=task.gains[task.best])


def _steepest(task: TaskAnalysis) -> float | None:
    at = [crossing(reference, task.level).wnr_db for reference in task.references if reference is not None]
    return at[0] if at else None
