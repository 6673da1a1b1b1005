"""Figures of noisy training: accuracy against round, and accuracy after a noisy link."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.reports.figures import Figure, Style, decibels, drawing, mathtext, new_figure, settle


def rounds_figure(records: Sequence[Record], *, style: Style = "screen") -> Figure:
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
                _draw(axes, [record for record in here if record["method"] == method], method)
            _draw(axes, clean, CLEAN)
            axes.set(xlabel="round", ylabel="test accuracy (%)", title=decibels(wnr_db), ylim=(0, 100))
            if place == len(wnrs) - 1:
                axes.legend(fontsize="small", loc="lower right")
        return settle(figure)


DEPLOYED = (("ml", "--"), ("planned", "-"))
"""The schemes whose networks are followed over the link, and how they are drawn."""


def deployment_figure(records: Sequence[Record], *, style: Style = "screen") -> Figure:
    """Noise in both phases: accuracy against the WNR of the link that the finished network is sent over.

    A colour for each WNR of training; dashed, trained with ML, solid, with the planned multiplier. The weights are used
    as the link delivers them.
    """
    sent = [record for record in records if record.get("deployed_wnr_db")]
    wnrs = sorted({record["wnr_db"] for record in sent if np.isfinite(record["wnr_db"])})
    with drawing(style):
        from matplotlib import colormaps

        figure = new_figure(5.6, 3.6)
        axes = figure.add_subplot(1, 1, 1)
        colours = colormaps["viridis"](np.linspace(0.0, 0.85, max(len(wnrs), 1)))
        for wnr_db, colour in zip(wnrs, colours, strict=True):
            for method, line in DEPLOYED:
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


def _draw(axes: Any, records: Sequence[Record], method: str) -> None:
    """The mean over the runs that reached each round; runs that diverged end where they did."""
    by_round: dict[int, list[float]] = {}
    for record in records:
        for number, accuracy in zip(record.get("tested_rounds") or (), record.get("round_accuracy") or (), strict=True):
            by_round.setdefault(number, []).append(100 * accuracy)
    if not by_round:
        return
    numbers = sorted(by_round)
    look = style_of(method)
    colour, label = ("#888888", "no noise") if method == CLEAN else (look.colour, mathtext(look.label))
    axes.plot(numbers, [np.mean(by_round[number]) for number in numbers], look.line, color=colour, label=label)
