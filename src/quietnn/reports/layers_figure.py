"""Layer by layer: the WNR that each layer sees and the temperatures that the search gave it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from quietnn.methods import is_oracle, style_of
from quietnn.records import Record
from quietnn.reports.figures import Figure, Style, decibels, drawing, mathtext, new_figure, settle, sized


def layer_records(records: Sequence[Record], *, wnr_db: float | None = None) -> tuple[Record, ...]:
    """The records with temperatures for each layer: one method at one WNR, all draws.

    Taken is the measured WNR nearest to `wnr_db` (by default the median); an oracle only if there is nothing else.
    """
    tuned = [record for record in records if record.get("group_temperatures") and math.isfinite(record["wnr_db"])]
    tuned = [record for record in tuned if not is_oracle(record["method"])] or tuned
    if not tuned:
        return ()
    wnrs = sorted({record["wnr_db"] for record in tuned})
    aim = wnrs[len(wnrs) // 2] if wnr_db is None else wnr_db
    nearest = min(wnrs, key=lambda wnr: (abs(wnr - aim), wnr))
    there = [record for record in tuned if record["wnr_db"] == nearest]
    chosen = there[0]["method"], there[0].get("run"), there[0].get("num_tuning_examples")
    return tuple(r for r in there if (r["method"], r.get("run"), r.get("num_tuning_examples")) == chosen)


def layers_figure(records: Sequence[Record], *, style: Style = "screen") -> Figure:
    """Three columns of dots, a row for each layer in the order of the network: WNR, `lambda'`, `beta`.

    Small dots are draws, the large one is their mean; the line marks the model's WNR, ML, and no bias.
    """
    look = style_of(records[0]["method"])
    names = list(records[0]["group_temperatures"])
    wnr_db = records[0]["wnr_db"]
    columns = (
        ("WNR of the layer (dB)", [_layer_wnrs(record, names) for record in records], wnr_db, "whole model"),
        (r"$\lambda'$", [_temperatures(record, names, 0) for record in records], 1.0, "ML"),
        (r"$\beta$", [_temperatures(record, names, 1) for record in records], 0.0, "no bias"),
    )
    with drawing(style):
        figure = new_figure(*sized(style, wide=True, height=max(2.4, 1.3 + 0.22 * len(names))))
        first: Any = None
        for index, (label, values, line, meaning) in enumerate(columns):
            axes = figure.add_subplot(1, 3, index + 1, sharey=first)
            first = first or axes
            _draw_dots(axes, np.asarray(values, dtype=float), look.colour, look.marker)
            axes.axvline(line, color="#555555", linewidth=0.9, linestyle="--", zorder=1)
            axes.set_title(f"dashed: {meaning}", fontsize="small", color="#555555")
            axes.set_xlabel(label)
            axes.tick_params(axis="y", labelleft=index == 0)
        first.set_yticks(range(len(names)), [mathtext(_short(name)) for name in names], fontsize="small")
        first.set_ylim(len(names) - 0.5, -0.5)
        draws = f"{len(records)} draws" if len(records) > 1 else "one draw"
        figure.suptitle(mathtext(f"{look.label}, {decibels(wnr_db)}, {draws}"), fontsize="medium")
        return settle(figure)


def _draw_dots(axes: Any, values: Any, colour: str, marker: str) -> None:
    """Draws and their mean, shape `(num_draws, num_layers)`; a layer without a value keeps its empty row."""
    rows = np.arange(values.shape[1])
    for draw in values:
        axes.plot(draw, rows, ".", color=colour, alpha=0.4, markersize=5, markeredgewidth=0)
    counts = np.isfinite(values).sum(axis=0)
    means = np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), np.nan)
    axes.plot(means, rows, marker, color=colour, markersize=5.5, markeredgecolor="white", markeredgewidth=0.6)


def _layer_wnrs(record: Record, names: Sequence[str]) -> list[float]:
    """Each layer's WNR; NaN where it is unknown or infinitely low (an estimated variance of zero)."""
    found = record.get("group_wnr_db") or {}
    return [_finite(found.get(name)) for name in names]


def _temperatures(record: Record, names: Sequence[str], place: int) -> list[float]:
    return [_finite((record["group_temperatures"].get(name) or (None, None))[place]) for name in names]


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _short(name: str, limit: int = 34) -> str:
    """A long module path keeps its end, which is what tells layers apart."""
    return name if len(name) <= limit else "…" + name[1 - limit :]
