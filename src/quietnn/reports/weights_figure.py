"""A histogram of a model's weights beside the Gaussian that the denoisers assume."""

import math
from collections.abc import Sequence

import numpy as np

from quietnn.reports.figures import Figure, Style, drawing, new_figure, settle


def weights_figure(
    counts: Sequence[int],
    *,
    low: float,
    high: float,
    mean: float,
    variance: float,
    noise_variance: float | None = None,
    style: Style = "screen",
) -> Figure:
    """The density of the weights on a logarithmic scale, with `N(mean, variance)` over it.

    Args:
        counts: how many weights lie in each of the even bins from `low` to `high`.
        low: the first edge.
        high: the last edge.
        mean: of the weights.
        variance: of the weights.
        noise_variance: also draw the noise, `N(mean, sigma_z^2)`, and the clean weights that would be left.
        style: of the figure.
    """
    edges = np.linspace(low, high, len(counts) + 1)
    width = (high - low) / len(counts)
    density = np.asarray(counts, dtype=float) / max(sum(counts), 1) / width
    curves = [("Gaussian of the same variance", variance, "#d55e00", "-")]
    if noise_variance:
        curves.append(("noise", noise_variance, "#555555", ":"))
        curves.append(("clean weights, estimated", max(variance - noise_variance, 0.0), "#009e73", "--"))
    with drawing(style):
        figure = new_figure(6.4, 4.0)
        axes = figure.add_subplot()
        axes.stairs(density, edges, fill=True, color="#0072b2", alpha=0.45, label="weights")
        for label, spread, colour, line in curves:
            if spread > 0:
                axes.plot(edges, _gaussian(edges, mean, spread), line, color=colour, label=label)
        if density.any():
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.5 * density[density > 0].min(), top=3 * density.max())
        axes.set_xlabel("weight")
        axes.set_ylabel("density")
        axes.legend(loc="upper left", fontsize="small")
        return settle(figure)


def _gaussian(places: "np.ndarray", mean: float, variance: float) -> "np.ndarray":
    return np.exp(-((places - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
