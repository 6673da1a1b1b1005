"""What a search for temperatures saw: the accuracy over `(lambda', beta)`, and the values that each layer got."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from quietnn.methods import is_oracle, style_of
from quietnn.records import Record
from quietnn.reports.curves import FloatArray
from quietnn.reports.figures import Figure, decibels, drawing, mathtext, new_figure, settle, sized
from quietnn.units import db_to_ratio

_COLOURS = "cividis"
_LONGEST_NAME = 34


def surface_records(records: Sequence[Record], *, wnr_db: float | None = None) -> tuple[Record, ...]:
    """The records whose trials make one comparable picture: one WNR, one draw, a record for each tuning size.

    Taken is the method with the widest search, at the measured WNR nearest to `wnr_db` (by default the median), in the
    first draw there; an oracle, tuned on test data, comes last.
    """
    tried = tried_records(records)
    tried = [record for record in tried if len({trial[1] for trial in record["trials"]}) > 1] or tried
    there = _nearest(tried, wnr_db)
    first = min((_draw(record) for record in there), default=None)
    panels: dict[tuple[bool, int, str], Record] = {}
    for record in there:
        if _draw(record) == first:
            panels.setdefault((is_oracle(record["method"]), _size(record), record["method"]), record)
    return tuple(panels[key] for key in sorted(panels))


def tried_records(records: Sequence[Record]) -> list[Record]:
    """Those of noise whose search kept its trials and judged them by accuracy."""
    return [
        record
        for record in records
        if record.get("trials") and record.get("accuracy") is not None and math.isfinite(record["wnr_db"])
    ]


def tuned_records(records: Sequence[Record]) -> list[Record]:
    """Those of noise with temperatures for each layer."""
    return [record for record in records if record.get("group_temperatures") and math.isfinite(record["wnr_db"])]


def pole_of(record: Record) -> float:
    """Where `lambda' = 1 + eta` lies for the receiver, at the WNR that it believed in."""
    believed: float = db_to_ratio(record["wnr_db"])
    if record.get("noise_variance") and record.get("assumed_noise_variance"):
        believed *= record["noise_variance"] / record["assumed_noise_variance"]
    return 1 + believed


def surface_figure(records: Sequence[Record], *, style: str = "screen") -> Figure:
    """A panel for each record, one colour scale for all, every point that was tried marked.

    Crosses and hatching mark what is infeasible (at and past the pole `lambda' = 1 + eta`).
    """
    tops = [trial[2] for record in records for trial in record["trials"] if trial[2] is not None]
    scale = (100 * min(tops, default=0.0), 100 * max(tops, default=1.0))
    scale = scale if scale[1] > scale[0] else (scale[0] - 1, scale[1] + 1)
    columns = min(2, max(1, len(records)))
    rows = -(-len(records) // columns) or 1
    with drawing(style):
        figure = new_figure(*sized(style, wide=columns > 1, height=4.2 * rows + 0.4))
        panels = [figure.add_subplot(rows, columns, index + 1) for index in range(len(records))]
        for axes, record in zip(panels, records, strict=True):
            _draw_surface(axes, record, scale)
        _draw_keys(figure, panels, scale)
        return settle(figure)


def _draw_keys(figure: Figure, panels: Sequence[Any], scale: tuple[float, float]) -> None:
    """One colour bar and one legend for all panels."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.colorbar(ScalarMappable(Normalize(*scale), _COLOURS), ax=panels, shrink=0.9, pad=0.02)
    bar.set_label("accuracy on the examples tuned on (%)")
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize="small")


def _draw_surface(axes: Any, record: Record, scale: tuple[float, float]) -> None:
    trials = np.asarray([[np.nan if cell is None else cell for cell in trial[:3]] for trial in record["trials"]], float)
    feasible = np.isfinite(trials[:, 2])
    good, bad = trials[feasible], trials[~feasible]
    _paint(axes, trials, good, scale)
    axes.plot(good[:, 0], good[:, 1], ".", color="white", markersize=3, markeredgecolor="#333333", markeredgewidth=0.4)
    axes.plot(bad[:, 0], bad[:, 1], "x", color="#888888", markersize=4, label="infeasible" if len(bad) else None)
    _set_limits(axes, trials)
    _draw_pole(axes, record)
    _mark(axes, (1.0, 0.0), "s", "#000000", "ML")
    _mark(axes, (0.0, 0.0), "v", "#E69F00", "MMSE")
    if record.get("lambda_prime") is not None:
        _mark(axes, (record["lambda_prime"], record.get("beta") or 0.0), "*", "#D55E00", "chosen")
    axes.grid(visible=False)
    axes.set(xlabel=r"$\lambda'$", ylabel=r"$\beta$")
    examples = "tuned on test data" if is_oracle(record["method"]) else f"κ = {_size(record)}"
    title = f"{style_of(record['method']).label}, {decibels(record['wnr_db'])}, draw {record['draw']}: {examples}"
    axes.set_title(mathtext(title), pad=16)


def _paint(axes: Any, trials: FloatArray, good: FloatArray, scale: tuple[float, float]) -> None:
    """Cells for a full grid, filled contours for scattered points, coloured dots for a line of them."""
    limits: dict[str, Any] = {"vmin": scale[0], "vmax": scale[1], "cmap": _COLOURS}
    horizontal, vertical = np.unique(trials[:, 0]), np.unique(trials[:, 1])
    if len(horizontal) > 1 and len(vertical) > 1 and len(horizontal) * len(vertical) == len(trials):
        cells = np.full((len(vertical), len(horizontal)), np.nan)
        rows, columns = np.searchsorted(vertical, good[:, 1]), np.searchsorted(horizontal, good[:, 0])
        cells[rows, columns] = 100 * good[:, 2]
        how = limits | {"shading": "nearest", "edgecolors": "face", "linewidth": 0.2}
        axes.pcolormesh(horizontal, vertical, np.ma.masked_invalid(cells), **how)
    elif len(good) > 2 and np.linalg.matrix_rank(good[:, :2] - good[0, :2], tol=1e-9) == 2:
        _, last = np.unique(good[::-1, :2], axis=0, return_index=True)  # a triangulation takes no repeats
        points = good[::-1][np.sort(last)]
        levels = np.linspace(scale[0], scale[1], 15)
        axes.tricontourf(points[:, 0], points[:, 1], 100 * points[:, 2], levels=levels, **limits)
    else:
        axes.scatter(good[:, 0], good[:, 1], c=100 * good[:, 2], s=60, **limits)


def _set_limits(axes: Any, trials: FloatArray) -> None:
    for setter, column in ((axes.set_xlim, 0), (axes.set_ylim, 1)):
        low, high = float(trials[:, column].min()), float(trials[:, column].max())
        margin = 0.06 * (high - low) or 0.5
        setter(low - margin, high + margin)


def _draw_pole(axes: Any, record: Record) -> None:
    """The pole at the WNR that the receiver believed in, with what lies past it hatched, and the regions named."""
    pole = pole_of(record)
    left, right = axes.get_xlim()
    if left < 1 < right:
        axes.axvline(1.0, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)))
    if left < pole < right:
        axes.axvline(pole, color="#000000", linewidth=1.2, label=r"pole $\lambda' = 1 + \eta$")
        axes.axvspan(pole, right, facecolor="#f2f2f2", edgecolor="#bbbbbb", hatch="///", linewidth=0, zorder=0)
        axes.set_xlim(left, right)
    for name, start, end in (("under", 0.0, 1.0), ("over", 1.0, pole)):
        start, end = max(start, left), min(end, right)
        if end - start > 0.12 * (right - left):
            axes.annotate(
                f"{name}-compensation" if end - start > 0.35 * (right - left) else name,
                ((start + end) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize="x-small",
                color="#555555",
            )


def _mark(axes: Any, point: tuple[float, float], marker: str, colour: str, label: str) -> None:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if left <= point[0] <= right and low <= point[1] <= high:
        size = 13 if marker == "*" else 7
        axes.plot(
            *point, marker, color=colour, markersize=size, markeredgecolor="white", markeredgewidth=1.0, label=label
        )


def _size(record: Record) -> int:
    return int(record.get("num_tuning_examples") or 0)


def _draw(record: Record) -> tuple[int, int]:
    return int(record.get("seed") or 0), int(record["draw"])


def layer_records(records: Sequence[Record], *, wnr_db: float | None = None) -> tuple[Record, ...]:
    """The records with temperatures for each layer: one method at one WNR, all draws.

    Taken is the measured WNR nearest to `wnr_db` (by default the median); an oracle only if there is nothing else.
    """
    tuned = tuned_records(records)
    tuned = [record for record in tuned if not is_oracle(record["method"])] or tuned
    there = _nearest(tuned, wnr_db)
    kinds = [(record["method"], record.get("run"), record.get("num_tuning_examples")) for record in there]
    return tuple(record for record, kind in zip(there, kinds, strict=True) if kind == kinds[0])


def _nearest(records: Sequence[Record], wnr_db: float | None) -> list[Record]:
    """The records at the measured WNR nearest to one, by default to the median."""
    wnrs = sorted({record["wnr_db"] for record in records})
    if not wnrs:
        return []
    aim = wnrs[len(wnrs) // 2] if wnr_db is None else wnr_db
    nearest = min(wnrs, key=lambda wnr: (abs(wnr - aim), wnr))
    return [record for record in records if record["wnr_db"] == nearest]


def layer_values(records: Sequence[Record]) -> tuple[list[str], dict[str, list[list[float]]]]:
    """The names of the layers, and for each draw their `wnrs`, `lambdas` and `betas`; NaN where one is unknown."""
    names = list(dict.fromkeys(name for record in records for name in record["group_temperatures"]))
    found: dict[str, list[list[float]]] = {"wnrs": [], "lambdas": [], "betas": []}
    for record in records:
        pairs = [record["group_temperatures"].get(name) or (None, None) for name in names]
        wnrs = record.get("group_wnr_db") or {}
        found["wnrs"].append([_number(wnrs.get(name)) for name in names])
        found["lambdas"].append([_number(pair[0]) for pair in pairs])
        found["betas"].append([_number(pair[1]) for pair in pairs])
    return names, found


def layers_figure(records: Sequence[Record], *, style: str = "screen") -> Figure:
    """Three columns of dots, a row for each layer in the order of the network: WNR, `lambda'`, `beta`.

    Small dots are draws, the large one is their mean; the line marks the model's WNR, ML, and no bias.
    """
    look = style_of(records[0]["method"])
    wnr_db = records[0]["wnr_db"]
    names, found = layer_values(records)
    columns = (
        ("WNR of the layer (dB)", found["wnrs"], wnr_db, "whole model"),
        (r"$\lambda'$", found["lambdas"], 1.0, "ML"),
        (r"$\beta$", found["betas"], 0.0, "no bias"),
    )
    with drawing(style):
        figure = new_figure(*sized(style, wide=True, height=max(2.4, 1.3 + 0.22 * len(names))))
        first: Any = None
        for index, (label, values, line, meaning) in enumerate(columns):
            axes = figure.add_subplot(1, 3, index + 1, sharey=first)
            first = first or axes
            _draw_dots(axes, np.asarray(values), look.colour, look.marker)
            axes.axvline(line, color="#555555", linewidth=0.9, linestyle="--", zorder=1)
            axes.set_title(f"dashed: {meaning}", fontsize="small", color="#555555")
            axes.set_xlabel(label)
            axes.tick_params(axis="y", labelleft=index == 0)
        # A long module path keeps its end, which is what tells layers apart.
        shown = [name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :] for name in names]
        first.set_yticks(range(len(names)), list(map(mathtext, shown)), fontsize="small")
        first.set_ylim(len(names) - 0.5, -0.5)
        draws = f"{len(records)} draws" if len(records) > 1 else "one draw"
        figure.suptitle(mathtext(f"{look.label}, {decibels(wnr_db)}, {draws}"), fontsize="medium")
        return settle(figure)


def _draw_dots(axes: Any, values: FloatArray, colour: str, marker: str) -> None:
    """Draws and their mean, shape `(num_draws, num_layers)`; an infinitely low WNR (no variance) leaves a gap."""
    values = np.where(np.isfinite(values), values, np.nan)
    rows = np.arange(values.shape[1])
    for draw in values:
        axes.plot(draw, rows, ".", color=colour, alpha=0.4, markersize=5, markeredgewidth=0)
    counts = np.isfinite(values).sum(axis=0)
    means = np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), np.nan)
    axes.plot(means, rows, marker, color=colour, markersize=5.5, markeredgecolor="white", markeredgewidth=0.6)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
