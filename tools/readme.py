"""Draws the figure of README.md and prints its table, both from the records under results/.

python tools/readme.py
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from quietnn.files import write_whole
from quietnn.reports.figures import Figure, drawing, new_figure, render, settle
from quietnn.reports.runs import read_run
from quietnn.units import db_to_ratio

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "before-after.svg"
RECEIVED, BY_LABELS = "ml", "posterior"


class Column(NamedTuple):
    """A network of the table: its run under results/, its WNR, and the method that repairs it by inputs."""

    network: str
    run: str
    wnr_db: float
    by_inputs: str


COLUMNS = (
    Column("ResNet18", "resnet18", -10.0, "self_trained"),
    Column("ResNet20", "past-the-paper-resnet20", 2.0, "self_trained"),
    Column("ShuffleNetV2", "shufflenetv2", -4.0, "self_trained"),
    Column("MiniLM", "minilm-fresh", 4.5, "branches_balanced"),
)

LINES = (
    ("posterior", "repaired, 100 inputs with labels", "#44AA99", "o", (-16, 8)),
    ("self_trained", "repaired, 100 inputs", "#B8860B", "D", (-24, -18)),
    ("ml", "as received", "#000000", "s", (26, 8)),
)
"""Of the figure: a method, its label, colour, marker, and how far from a point of its line the label stands."""


def accuracies(run: str, method: str) -> dict[float, float]:
    """The mean accuracy of a method at each WNR of a run, in per cent, over all of its noise draws."""
    found: dict[float, list[float]] = {}
    for record in read_run(ROOT / "results" / run).records:
        if record["method"] == method:
            found.setdefault(record["wnr_db"], []).append(100 * record["accuracy"])
    return {wnr_db: float(np.mean(found[wnr_db])) for wnr_db in sorted(found)}


def table() -> str:
    """Accuracy with nothing, with inputs and with labels, a column for each network."""
    clean = [f"{accuracies(column.run, 'clean')[np.inf]:.0f}" for column in COLUMNS]
    rows = [
        ("you have", *(f"{column.network} at {column.wnr_db:g} dB" for column in COLUMNS)),
        ("---", *("---:" for _ in COLUMNS)),
        ("nothing: as received", *(_cell(column, RECEIVED) for column in COLUMNS)),
        ("100 inputs, balanced classes", *(_cell(column, column.by_inputs) for column in COLUMNS)),
        ("100 inputs with labels", *(_cell(column, BY_LABELS) for column in COLUMNS)),
        ("*without noise*", *(f"*{accuracy}*" for accuracy in clean)),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(column: Column, method: str) -> str:
    return f"{accuracies(column.run, method)[column.wnr_db]:.0f}"


def figure() -> Figure:
    """Accuracy of the digits network against noise power, as received and repaired."""
    with drawing():
        drawn = new_figure(6.4, 3.3)
        axes = drawn.add_subplot(1, 1, 1)
        for method, label, colour, marker, place in LINES:
            points = accuracies("digits", method)
            noise = [1 / db_to_ratio(wnr_db) for wnr_db in points]
            axes.plot(noise, list(points.values()), marker=marker, color=colour, linewidth=2.0)
            at = (noise[1], list(points.values())[1])
            axes.annotate(label, at, place, textcoords="offset points", ha="center", color=colour, weight="bold")
        axes.set_xscale("log")
        axes.set_xticks(noise, [f"{power:.0%}" for power in noise])
        axes.set_xticks([], minor=True)
        axes.set(xlabel="power of the noise, relative to the weights", ylabel="digits recognised (%)", ylim=(0, 109))
        axes.set_yticks(range(0, 101, 20))
        return settle(drawn)


def main() -> None:
    """Write the figure, print the table."""
    write_whole(FIGURE, render(figure(), "svg"))
    print(table())


if __name__ == "__main__":
    main()
