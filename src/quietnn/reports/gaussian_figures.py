"""A model's weights and the errors of channels, each beside the Gaussian that the denoisers assume."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.curves import FloatArray
from quietnn.reports.figures import Figure, drawing, new_figure, settle

_COLUMNS = 4


def weights_figure(
    counts: Sequence[int], span: tuple[float, float], mean: float, variance: float, noise_variance: float | None = None
) -> Figure:
    """The density of the weights on a logarithmic scale, with `N(mean, variance)` over it.

    The counts are those of even bins over the span. With a noise variance, the noise `N(mean, sigma_z^2)` and the clean
    weights that would be left are drawn too.
    """
    low, high = span
    edges = np.linspace(low, high, len(counts) + 1)
    width = (high - low) / len(counts)
    density = np.asarray(counts, dtype=float) / max(sum(counts), 1) / width
    curves = [("Gaussian of the same variance", variance, "#d55e00", "-")]
    if noise_variance:
        curves.append(("noise", noise_variance, "#555555", ":"))
        curves.append(("clean weights, estimated", max(variance - noise_variance, 0.0), "#009e73", "--"))
    with drawing():
        figure = new_figure(6.4, 4.0)
        axes = figure.add_subplot()
        axes.stairs(density, edges, fill=True, color="#0072b2", alpha=0.45, label="weights")
        for label, spread, colour, line in curves:
            if spread > 0:
                axes.plot(edges, _gaussian(edges, mean, spread), line, color=colour, label=label)
        if density.any():
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.5 * density[density > 0].min(), top=3 * density.max())
        axes.set(xlabel="weight", ylabel="density")
        axes.legend(loc="upper left", fontsize="small")
        return settle(figure)


def density_figure(found: Sequence[Record], *, reach: float) -> Figure:
    """A histogram for each channel of `channel_errors`, with the Gaussian over it; it reaches so many deviations."""
    places = np.linspace(-reach, reach, 301)

    def draw(axes: Any, record: Record) -> None:
        density = np.asarray(record["histogram"]) * len(record["histogram"]) / (2 * reach)
        axes.stairs(density, np.linspace(-reach, reach, len(density) + 1), fill=True, color="#0072B2", alpha=0.5)
        axes.plot(places, _gaussian(places, 0.0, 1.0), "--", color="#D55E00", linewidth=1)
        axes.set_yscale("log")
        axes.set_ylim(1e-5, 10)

    return _panels(found, draw, "error (standard deviations)", "density")


def quantile_figure(found: Sequence[Record], *, probabilities: Sequence[float]) -> Figure:
    """Quantile of the error against quantile of a Gaussian, for each channel; a Gaussian lies on the dashed line."""
    normal = [NormalDist().inv_cdf(probability) for probability in probabilities]

    def draw(axes: Any, record: Record) -> None:
        axes.plot(normal, record["quantiles"], "o-", color="#0072B2", markersize=3, linewidth=1)
        axes.plot(normal, normal, "--", color="#D55E00", linewidth=1)
        axes.set_ylim(-8, 8)

    return _panels(found, draw, "quantile of a Gaussian", "quantile of the error")


def _panels(found: Sequence[Record], draw: Callable[[Any, Record], None], across: str, up: str) -> Figure:
    """A panel for each record of a whole model."""
    models = [record for record in found if record.get("layer") == "" and "histogram" in record]
    if not models:
        raise InvalidConfig("there is no record of a channel's error on a whole model; run quietnn channels first")
    rows = math.ceil(len(models) / _COLUMNS)
    columns = min(len(models), _COLUMNS)
    with drawing():
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


def _gaussian(places: FloatArray, mean: float, variance: float) -> FloatArray:
    return np.asarray(np.exp(-((places - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance))
