"""The error of channels beside a Gaussian of the same variance: a panel for each, histogram or quantiles."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.figures import Figure, Style, drawing, new_figure, settle

_COLUMNS = 4


def density_figure(found: Sequence[Record], *, reach: float, style: Style = "screen") -> Figure:
    """A histogram for each channel on a logarithmic scale, with the Gaussian over it.

    Args:
        found: records of the experiment `channel_errors`; those of single tensors are left out.
        reach: the histograms' range on either side, in standard deviations.
        style: of the figure.
    """
    places = np.linspace(-reach, reach, 301)

    def draw(axes: Any, record: Record) -> None:
        density = np.asarray(record["histogram"]) * len(record["histogram"]) / (2 * reach)
        axes.stairs(density, np.linspace(-reach, reach, len(density) + 1), fill=True, color="#0072B2", alpha=0.5)
        axes.plot(places, np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi), "--", color="#D55E00", linewidth=1)
        axes.set_yscale("log")
        axes.set_ylim(1e-5, 10)

    return _panels(found, draw, "error (standard deviations)", "density", style)


def quantile_figure(found: Sequence[Record], *, probabilities: Sequence[float], style: Style = "screen") -> Figure:
    """Quantile of the error against quantile of a Gaussian, for each channel; a Gaussian lies on the dashed line.

    Args:
        found: records of the experiment `channel_errors`; those of single tensors are left out.
        probabilities: where their quantiles were taken.
        style: of the figure.
    """
    normal = [NormalDist().inv_cdf(probability) for probability in probabilities]

    def draw(axes: Any, record: Record) -> None:
        axes.plot(normal, record["quantiles"], "o-", color="#0072B2", markersize=3, linewidth=1)
        axes.plot(normal, normal, "--", color="#D55E00", linewidth=1)
        axes.set_ylim(-8, 8)

    return _panels(found, draw, "quantile of a Gaussian", "quantile of the error", style)


def _panels(found: Sequence[Record], draw: Any, across: str, up: str, style: Style) -> Figure:
    models = [record for record in found if record.get("layer") == "" and "histogram" in record]
    if not models:
        raise InvalidConfig("there is no record of a channel's error on a whole model; run quietnn channels first")
    rows = math.ceil(len(models) / _COLUMNS)
    columns = min(len(models), _COLUMNS)
    with drawing(style):
        figure = new_figure(2.6 * columns + 0.8, 2.1 * rows + 0.6)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(models):
                axes.set_visible(False)
                continue
            record = models[place]
            draw(axes, record)
            name = str(record["channel"]).replace(":", ":\n").replace("$", "")
            axes.set_title(f"{name}\nkurtosis {record['excess_kurtosis']:+.1f}", fontsize=7)
            axes.tick_params(labelsize=7)
        figure.supxlabel(across, fontsize=9)
        figure.supylabel(up, fontsize=9)
        return settle(figure)
