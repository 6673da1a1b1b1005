"""The error of media beside a Gaussian of the same variance: histograms, and quantile against quantile."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.figures import Figure, Style, drawing, new_figure, settle

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")


def error_figure(
    found: Sequence[Record], *, probabilities: Sequence[float], reach: float, style: Style = "screen"
) -> Figure:
    """One line for each medium, from its record of the whole model.

    Args:
        found: records of the experiment `media_errors`; those of single tensors are left out.
        probabilities: where their quantiles were taken.
        reach: the histograms' range on either side, in standard deviations.
        style: of the figure.
    """
    models = [record for record in found if record.get("layer") == "" and "histogram" in record]
    if not models:
        raise InvalidConfig("there is no record of a medium's error on a whole model; run quietnn media first")
    normal = [NormalDist().inv_cdf(probability) for probability in probabilities]
    with drawing(style):
        figure = new_figure(9.6, 4.2)
        left, right = figure.subplots(1, 2)
        for index, record in enumerate(models):
            colour, label = _COLOURS[index % len(_COLOURS)], str(record["channel"])
            density = np.asarray(record["histogram"]) * len(record["histogram"]) / (2 * reach)
            left.stairs(density, np.linspace(-reach, reach, len(density) + 1), color=colour, label=label)
            right.plot(normal, record["quantiles"], "o-", color=colour, markersize=3, label=label)
        places = np.linspace(-reach, reach, 301)
        left.plot(places, np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi), "k--", label="Gaussian")
        right.plot(normal, normal, "k--")
        left.set_yscale("log")
        left.set_ylim(1e-5, 20)
        left.set_xlabel("error (standard deviations)")
        left.set_ylabel("density")
        left.legend(loc="upper left", fontsize="x-small")
        right.set_ylim(-10, 10)
        right.set_xlabel("quantile of a Gaussian")
        right.set_ylabel("quantile of the error")
        return settle(figure)
