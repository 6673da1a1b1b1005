"""Channels against each other at equal channel uses.

A channel that takes `rate` real channel uses a weight is up against white noise that takes as many: sending all weights
alike `rate` times divides the noise by it. So each result stands at

    WNR of the link + 10 log10(rate)       (dB)
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from quietnn.errors import MissingData
from quietnn.methods import style_of
from quietnn.records import Record
from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.analysis import default_level
from quietnn.reports.channels import channel_title
from quietnn.reports.curves import clean_accuracy, curves
from quietnn.reports.figures import Figure, Style
from quietnn.reports.runs import Run
from quietnn.reports.titles import task_title
from quietnn.units import ratio_to_db

AXIS = "link WNR of one channel use a weight (dB)"


def equal_uses_figure(
    runs: Sequence[Run], *, methods: Sequence[str] = ("ml", "calibrated"), style: Style = "screen"
) -> Figure:
    """Accuracy over several links: a panel for each method, a curve for each channel.

    Args:
        runs: of one task, each over a channel that is set by the WNR of its link.
        methods: what to draw.
        style: how the figure looks.

    Raises:
        MissingData: if no run has a result of these methods.
    """
    records = [at_equal_uses(record) for run in runs for record in run.records]
    kept = [record for record in records if record["method"] in methods and math.isfinite(record["wnr_db"])]
    if not kept:
        raise MissingData(f"no run holds results of {', '.join(methods)}; give folders of sweeps that measured them")
    task, clean = str(kept[0]["task"]), clean_accuracy(records)
    panels = [
        Panel(
            f"{task_title(task)} at equal channel uses: {style_of(method).label}",
            [replace(curve, label=" and ".join(curve.runs)) for curve in curves(kept) if curve.method == method],
            default_level(task),
            clean[0] if clean else None,
            axis=AXIS,
        )
        for method in methods
    ]
    return accuracy_figure(panels, style=style)


def at_equal_uses(record: Record) -> Record:
    """A record under the name of its channel, at the WNR of white noise in as many channel uses.

    >>> at_equal_uses({"wnr_db": 6.0, "channel": "fading", "rate": 2.0})["wnr_db"]
    9.01
    """
    shift = ratio_to_db(float(record.get("rate", 1.0)))
    wnr_db = round(float(record["wnr_db"]) + shift, 2) if shift else record["wnr_db"]
    return {**record, "run": channel_title(str(record.get("channel") or "awgn")), "wnr_db": wnr_db}
