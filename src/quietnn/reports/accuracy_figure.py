"""Accuracy against WNR: mean curves with bands of one standard deviation, and the decibels gained, drawn as such."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quietnn.methods import is_oracle, style_of
from quietnn.reports.curves import Curve, FloatArray
from quietnn.reports.figures import Figure, Style, drawing, mathtext, new_figure, settle, sized
from quietnn.reports.gains import Gain, crossing, percent

_VARIANT_LINES = ("-", "--", "-.", ":")
_MOST_INSIDE = 8
_MOST_TICKS = 12
_CLOSEST_TICKS = 0.06
"""Of the axis; closer numbers run into each other."""


@dataclass(frozen=True, eq=False)
class Panel:
    """What one pair of axes shows.

    Attributes:
        title: what was measured, e.g. the task.
        curves: the curves to draw.
        level: the accuracy at which the gain is read.
        clean: the accuracy without noise, if known.
        reference: the curve that the gain is measured from, if there is one.
        gain: what the best method gains over it, if its curve crosses the level.
        axis: the name of the horizontal axis.
        ticks: what a channel was set to, by the WNR it amounts to; written under that WNR.
    """

    title: str
    curves: Sequence[Curve]
    level: float
    clean: float | None = None
    reference: Curve | None = None
    gain: Gain | None = None
    axis: str = "WNR (dB)"
    ticks: Mapping[float, str] = field(default_factory=dict)


def accuracy_figure(panels: Sequence[Panel], *, style: Style = "screen") -> Figure:
    """The accuracy curves of one or more tasks, a panel for each, two panels to a row.

    Bands are plus and minus one standard deviation over noise draws.
    """
    columns = min(2, max(1, len(panels)))
    rows = -(-len(panels) // columns) or 1
    with drawing(style):
        figure = new_figure(*sized(style, wide=columns > 1, height=4.0 * rows))
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1)
            _draw_panel(axes, panel, legend="best" if style == "paper" else "lower right")
            if style == "paper" and len(panels) == 1:
                axes.set_title("")  # the caption says it
        return settle(figure)


def _draw_panel(axes: Any, panel: Panel, *, legend: str) -> None:
    seen: dict[str, int] = {}
    for curve in panel.curves:
        variant = seen.get(curve.method, 0)
        seen[curve.method] = variant + 1
        _draw_curve(axes, curve, variant)
    if panel.clean is not None:
        axes.axhline(
            100 * panel.clean, color="#777777", linewidth=1, zorder=1, label=f"no noise, {100 * panel.clean:.1f} %"
        )
    axes.axhline(100 * panel.level, color="#999999", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.set(xlabel=panel.axis, ylabel="test accuracy (%)", title=mathtext(panel.title))
    _set_limits(axes, panel)
    _draw_gain(axes, panel)
    outside = len(panel.curves) > _MOST_INSIDE
    axes.legend(
        loc="upper left" if outside else legend, bbox_to_anchor=(1.0, 1.0) if outside else None, fontsize="small"
    )


def _draw_curve(axes: Any, curve: Curve, variant: int) -> None:
    """One line and its band; a further run or tuning size of the same method keeps its colour and changes its dash."""
    look = style_of(curve.method)
    measured = np.isfinite(curve.mean)
    wnr_db, mean = curve.wnr_db[measured], 100 * curve.mean[measured]
    spread = 100 * np.nan_to_num(curve.std[measured])
    line = look.line if variant == 0 else _VARIANT_LINES[(_VARIANT_LINES.index(look.line) + variant) % 4]
    hollow = is_oracle(curve.method) or variant > 0
    axes.plot(
        wnr_db,
        mean,
        color=look.colour,
        marker=look.marker,
        linestyle=line,
        markerfacecolor="white" if hollow else look.colour,
        label=mathtext(curve.label),
        zorder=3,
    )
    axes.fill_between(wnr_db, mean - spread, mean + spread, color=look.colour, alpha=0.13, linewidth=0, zorder=2)


def _set_limits(axes: Any, panel: Panel) -> None:
    """The whole range of accuracies, so that figures compare at a glance."""
    wnrs = np.concatenate([curve.wnr_db for curve in panel.curves]) if panel.curves else np.asarray([0.0])
    margin = 0.03 * max(float(np.ptp(wnrs)), 1.0)
    axes.set_xlim(float(wnrs.min()) - margin, float(wnrs.max()) + margin)
    axes.set_ylim(0, 103)
    measured = _apart(np.unique(wnrs))
    if len(measured) <= _MOST_TICKS:
        axes.set_xticks(measured, [_tick(float(wnr), panel.ticks) for wnr in measured])


def _apart(wnrs: FloatArray) -> FloatArray:
    """Of ascending WNRs those whose names would not touch."""
    kept: list[float] = []
    for wnr in wnrs:
        if not kept or wnr - kept[-1] >= _CLOSEST_TICKS * float(np.ptp(wnrs)):
            kept.append(float(wnr))
    return np.asarray(kept)


def _tick(wnr_db: float, ticks: Mapping[float, str]) -> str:
    under = f"\n{ticks[wnr_db]}" if wnr_db in ticks else ""
    return f"{wnr_db:g}".replace("-", "−") + under


def _draw_gain(axes: Any, panel: Panel) -> None:
    """A double arrow from the best curve to the reference; the decibels stand at the left, above the fallen curves."""
    text = percent(panel.level)
    right = crossing(panel.reference, panel.level).wnr_db if panel.reference else None
    if right is not None and panel.gain is not None and panel.gain.gain_db is not None:
        text = f"{panel.gain.gain_db:+.1f} dB at {text}"
        ends = (right - panel.gain.gain_db, 100 * panel.level), (right, 100 * panel.level)
        arrow = {"arrowstyle": "<->", "color": "#222222", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", *ends, arrowprops=arrow, zorder=5)
    axes.annotate(
        text,
        (0.0, 100 * panel.level),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize="small",
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0},
        zorder=6,
    )
