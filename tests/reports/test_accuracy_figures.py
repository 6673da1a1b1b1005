"""Accuracy against the WNR and against the round: what the figures show."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from tests.reports.shortcuts import make_curve

from quietnn.reports.accuracy_figures import accuracy_figure, deployment_figure, rounds_figure
from quietnn.reports.analysis import TaskAnalysis
from quietnn.reports.curves import Curve
from quietnn.reports.figures import render
from quietnn.reports.gains import gain_db

ML = make_curve("ml", [-8, -6, -4], [[0.2, 0.5, 0.9], [0.3, 0.6, 0.9]])
BETTER = make_curve("mmse_pb", [-8, -6, -4], [[0.5, 0.8, 0.95], [0.4, 0.7, 0.95]])
TASK = TaskAnalysis(
    "digits", 0.6, (), (0.98, 1000), (ML, BETTER), (ML, ML), (None, GAIN := gain_db(BETTER, ML, 0.6)), best=1
)


def alone(curve: Curve, name: str = "digits") -> TaskAnalysis:
    return TaskAnalysis(name, 0.6, (), None, (curve,), (None,), (None,), None)


def texts(axes: object) -> list[str]:
    return [text.get_text() for text in axes.texts]  # type: ignore[attr-defined]


def test_the_accuracy_figure_shows_means_bands_clean_line_and_gain() -> None:
    (axes,) = accuracy_figure([TASK]).axes
    by_label = {line.get_label(): line for line in axes.lines}
    np.testing.assert_allclose(by_label["ML"].get_ydata(), [25, 55, 90])
    np.testing.assert_allclose(by_label["MMSE$_{pb}$"].get_ydata(), [45, 75, 95])
    assert "no noise, 98 %" in by_label
    assert len(axes.collections) == 2
    assert f"{GAIN.gain_db:+.1f} dB at 60 %" in texts(axes)


def test_without_a_gain_only_the_level_is_marked() -> None:
    (axes,) = accuracy_figure([alone(ML)]).axes
    assert texts(axes) == ["60 %"]


def test_a_panel_for_each_task() -> None:
    assert len(accuracy_figure([TASK] * 3, style="paper").axes) == 3


@pytest.mark.parametrize("name", ["$broken$ {\\frac", "a $ b", "<script>&", "\\alpha_"])
def test_names_from_records_are_never_read_as_mathematics(name: str) -> None:
    hostile = make_curve("ml", [-8, -6], [[0.2, 0.5]], label=name)
    svg = render(accuracy_figure([alone(hostile, name)]), "svg").decode()
    ElementTree.fromstring(svg)
    assert "<script" not in svg


def test_rounds_are_means_over_the_seeds_with_a_panel_for_each_wnr() -> None:
    records = [
        {"method": method, "wnr_db": wnr_db, "tested_rounds": [1, 2], "round_accuracy": [0.2, 0.4 + seed / 10]}
        for method, wnr_db in (("ml", -4.0), ("ml", 0.0), ("clean", np.inf))
        for seed in (0, 2)
    ]
    panels = rounds_figure(records).axes
    assert [axes.get_title() for axes in panels] == ["−4 dB", "0 dB"]
    np.testing.assert_allclose([line.get_ydata() for line in panels[0].lines], [[20, 50], [20, 50]])
    assert [line.get_label() for line in panels[0].lines] == ["ML", "no noise"]


def test_a_link_is_followed_for_ml_and_the_planned_scheme() -> None:
    records = [
        {"method": method, "wnr_db": 0.0, "deployed_wnr_db": [0.0, 10.0], "deployed_ml": [0.1, 0.5 + seed / 10]}
        for method in ("ml", "planned", "mmse")
        for seed in (0, 2)
    ]
    (axes,) = deployment_figure(records).axes
    assert [line.get_label() for line in axes.lines] == ["ML, trained at 0 dB", "Planned, trained at 0 dB"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [10, 60])


def test_a_legend_that_would_hide_a_curve_stands_outside() -> None:
    low = make_curve("mmse", [-8, -6, -4], [[0.1, 0.1, 0.2]])

    def left_edge(*curves: Curve) -> float:
        task = TaskAnalysis("digits", 0.6, (), None, curves, (None,) * len(curves), (None,) * len(curves), None)
        figure = accuracy_figure([task])
        figure.canvas.draw()
        (axes,) = figure.axes
        return float(axes.get_legend().get_window_extent().x0 - axes.get_window_extent().x1)

    assert left_edge(ML) < 0
    assert left_edge(ML, low) > -1
