"""Accuracy, perplexity or a score as lines: against the WNR with its gains, against the round, over a noisy link."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.curves import Curve, FloatArray
from quietnn.reports.figures import Figure, decibels, drawing, looks, mathtext, new_figure, settle, sized
from quietnn.reports.gains import crossing
from quietnn.reports.quantities import Quantity
from quietnn.reports.titles import level_ticks, over_channels, wnr_axis

_MOST_INSIDE = 8
_CORNERS = ("lower right", "upper right")
_LEGEND_WIDTH = 0.42
_ENTRY = 0.047
"""What a legend takes of the axes: its width, and the height of an entry; as measured in the figures of results/."""

_MOST_TICKS = 12
_CLOSEST_TICKS = 0.06
"""Of the axis; closer numbers run into each other."""

_DEPLOYED = (("ml", "--"), ("planned", "-"))
"""The schemes whose networks are followed over the link, and how they are drawn."""


def accuracy_figure(tasks: Sequence[TaskAnalysis], *, style: str = "screen") -> Figure:
    """The accuracy curves of one or more tasks, a panel for each, two panels to a row.

    Bands are plus and minus one standard deviation over noise draws; the largest gain is an arrow.
    """
    columns = min(2, max(1, len(tasks)))
    rows = -(-len(tasks) // columns) or 1
    with drawing(style):
        figure = new_figure(*sized(style, wide=columns > 1, height=4.0 * rows))
        for index, task in enumerate(tasks):
            axes = figure.add_subplot(rows, columns, index + 1)
            free = "lower right" if task.quantity.better == "above" else "upper right"
            _draw_task(axes, task, legend="best" if style == "paper" else free)
            if style == "paper" and len(tasks) == 1:
                axes.set_title("")  # the caption says it
        return settle(figure)


def _draw_task(axes: Any, task: TaskAnalysis, *, legend: str) -> None:
    quantity = task.quantity
    for curve, look in zip(task.curves, looks([curve.method for curve in task.curves]), strict=True):
        _draw_curve(axes, curve, look)
    if task.clean is not None:
        label = f"no noise, {quantity.text(task.clean[0])}"
        axes.axhline(quantity.drawn(task.clean[0]), color="#777777", linewidth=1, zorder=1, label=label)
    axes.axhline(quantity.drawn(task.level), color="#999999", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    title = mathtext(over_channels(task.task, task.records))
    axes.set(xlabel=wnr_axis(task.records), ylabel=quantity.axis, title=title)
    _set_limits(axes, task.curves, level_ticks(task.records), quantity)
    _draw_gain(axes, task)
    outside = len(task.curves) > _MOST_INSIDE or (legend in _CORNERS and _is_taken(axes, task.curves, legend))
    axes.legend(
        loc="upper left" if outside else legend, bbox_to_anchor=(1.0, 1.0) if outside else None, fontsize="small"
    )


def _is_taken(axes: Any, curves: Sequence[Curve], corner: str) -> bool:
    """Whether a curve runs through the corner that the legend would stand in."""
    height = _ENTRY * (len(curves) + 2)
    for curve in curves:
        measured = np.isfinite(curve.mean)
        points = np.column_stack([curve.wnr_db[measured], curve.quantity.drawn(curve.mean[measured])])
        if not len(points):
            continue
        across, up = axes.transAxes.inverted().transform(axes.transData.transform(points)).T
        inside = np.linspace(max(1.0 - _LEGEND_WIDTH, across[0]), across[-1], 50)
        heights = np.interp(inside[inside >= 1.0 - _LEGEND_WIDTH], across, up)
        if np.any(heights < height if corner == "lower right" else heights > 1.0 - height):
            return True
    return False


def _draw_curve(axes: Any, curve: Curve, look: Mapping[str, Any]) -> None:
    """One line and its band."""
    measured = np.isfinite(curve.mean)
    wnr_db, mean, drawn = curve.wnr_db[measured], curve.mean[measured], curve.quantity.drawn
    spread = np.nan_to_num(curve.std[measured])
    axes.plot(
        wnr_db,
        drawn(mean),
        color=look["colour"],
        marker=look["marker"],
        linestyle=look["dash"],
        markerfacecolor="white" if look["hollow"] else look["colour"],
        label=mathtext(curve.label),
        zorder=3,
    )
    low, high = drawn(mean - spread), drawn(mean + spread)
    axes.fill_between(wnr_db, low, high, color=look["colour"], alpha=0.13, linewidth=0, zorder=2)


def _set_limits(axes: Any, curves: Sequence[Curve], ticks: Mapping[float, str], quantity: Quantity) -> None:
    """The whole range of accuracies, so that figures compare at a glance; a channel's setting under its WNR."""
    wnrs = np.concatenate([curve.wnr_db for curve in curves]) if curves else np.asarray([0.0])
    margin = 0.03 * max(float(np.ptp(wnrs)), 1.0)
    axes.set_xlim(float(wnrs.min()) - margin, float(wnrs.max()) + margin)
    if quantity.log:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    if quantity.limits is not None:
        axes.set_ylim(*quantity.limits)
    measured = _apart(np.unique(wnrs))
    if len(measured) <= _MOST_TICKS:
        names = [f"{wnr:g}".replace("-", "−") + (f"\n{ticks[wnr]}" if wnr in ticks else "") for wnr in measured]
        axes.set_xticks(measured, names)


def _apart(wnrs: FloatArray) -> list[float]:
    """Of ascending WNRs those whose names would not touch."""
    kept: list[float] = []
    for wnr in wnrs:
        if not kept or wnr - kept[-1] >= _CLOSEST_TICKS * float(np.ptp(wnrs)):
            kept.append(float(wnr))
    return kept


def _draw_gain(axes: Any, task: TaskAnalysis) -> None:
    """A double arrow from the best curve to the reference; the decibels stand at the left, above the fallen curves."""
    text, height = task.quantity.text(task.level), task.quantity.drawn(task.level)
    gain = None if task.best is None else task.gains[task.best]
    reference = None if task.best is None else task.references[task.best]
    right = crossing(reference, task.level).wnr_db if reference else None
    if right is not None and gain is not None and gain.gain_db is not None:
        text = f"{gain.gain_db:+.1f} dB at {text}"
        arrow = {"arrowstyle": "<->", "color": "#222222", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (right - gain.gain_db, height), (right, height), arrowprops=arrow, zorder=5)
    axes.annotate(
        text,
        (0.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize="small",
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0},
        zorder=6,
    )


def rounds_figure(records: Sequence[Record], *, style: str = "screen") -> Figure:
    """Test accuracy against round, a panel for each WNR, mean over the seeds; without noise in grey."""
    wnrs = sorted({record["wnr_db"] for record in records if np.isfinite(record["wnr_db"])})
    clean = [record for record in records if record["method"] == CLEAN]
    columns = min(2, max(len(wnrs), 1))
    rows = -(-len(wnrs) // columns) or 1
    with drawing(style):
        figure = new_figure(4.2 * columns, 3.1 * rows)
        for place, wnr_db in enumerate(wnrs):
            axes = figure.add_subplot(rows, columns, place + 1)
            here = [record for record in records if record["wnr_db"] == wnr_db]
            for method in sorted({record["method"] for record in here}, key=rank):
                _draw_rounds(axes, [record for record in here if record["method"] == method], method)
            _draw_rounds(axes, clean, CLEAN)
            axes.set(xlabel="round", ylabel="test accuracy (%)", title=decibels(wnr_db), ylim=(0, 100))
            if place == len(wnrs) - 1:
                axes.legend(fontsize="small", loc="lower right")
        return settle(figure)


def _draw_rounds(axes: Any, records: Sequence[Record], method: str) -> None:
    """The mean over the runs that reached each round; runs that diverged end where they did."""
    found = by_round(records)
    look = style_of(method)
    colour, label = ("#888888", "no noise") if method == CLEAN else (look.colour, mathtext(look.label))
    if found:
        means = [np.mean([100 * accuracy for accuracy in accuracies]) for accuracies in found.values()]
        axes.plot(list(found), means, look.line, color=colour, label=label)


def by_round(records: Iterable[Record]) -> dict[int, list[float]]:
    """The accuracies of runs at each round that was tested, in the order of the rounds."""
    found: dict[int, list[float]] = defaultdict(list)
    for record in records:
        for number, accuracy in zip(record.get("tested_rounds") or (), record.get("round_accuracy") or (), strict=True):
            found[number].append(accuracy)
    return dict(sorted(found.items()))


def deployment_figure(records: Sequence[Record]) -> Figure:
    """Noise in both phases: accuracy against the WNR of the link that the finished network is sent over.

    A colour for each WNR of training; dashed, trained with ML, solid, with the planned multiplier. The weights are used
    as the link delivers them.
    """
    sent = [record for record in records if record.get("deployed_wnr_db")]
    wnrs = sorted({record["wnr_db"] for record in sent if np.isfinite(record["wnr_db"])})
    with drawing():
        from matplotlib import colormaps

        figure = new_figure(5.6, 3.6)
        axes = figure.add_subplot(1, 1, 1)
        colours = colormaps["viridis"](np.linspace(0.0, 0.85, max(len(wnrs), 1)))
        for wnr_db, colour in zip(wnrs, colours, strict=True):
            for method, line in _DEPLOYED:
                here = [record for record in sent if (record["wnr_db"], record["method"]) == (wnr_db, method)]
                label = f"{style_of(method).label}, trained at {decibels(wnr_db)}"
                _draw_deployed(axes, here, colour, line, label)
        _draw_deployed(axes, [record for record in sent if record["method"] == CLEAN], "#888888", "-", "no noise")
        axes.set(xlabel="WNR of the link (dB)", ylabel="test accuracy (%)", ylim=(0, 100))
        axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return settle(figure)


def _draw_deployed(axes: Any, records: Sequence[Record], colour: Any, line: str, label: str) -> None:
    if records:
        grid = records[0]["deployed_wnr_db"]
        same = [record["deployed_ml"] for record in records if record["deployed_wnr_db"] == grid]
        axes.plot(grid, 100 * np.mean(same, axis=0), line, color=colour, label=label, marker="o", markersize=3)
