"""Searched surfaces and the temperatures of layers: which records are drawn, and what of them."""

import math

import numpy as np
import pytest

from quietnn.records import Record
from quietnn.reports.curves import curves
from quietnn.reports.figures import render
from quietnn.reports.temperature_figures import layer_records, layers_figure, surface_figure, surface_records


def test_the_surface_is_one_wnr_and_draw_with_the_oracle_last(full_records: tuple[Record, ...]) -> None:
    small = [record | {"num_tuning_examples": 10} for record in full_records if record["method"] == "mmse_pb"]
    found = surface_records([*full_records, *small], wnr_db=-5.8)
    assert [(record["method"], record["num_tuning_examples"]) for record in found] == [
        ("mmse_pb", 10),
        ("mmse_pb", 100),
        ("mmse_pb_oracle", 100),
    ]
    assert {(record["wnr_db"], record["draw"]) for record in found} == {(-6.0, 0)}
    figure = surface_figure(found)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[0] == "MMSE$_{pb}$, −6 dB, draw 0: κ = 10"
    assert titles[2].endswith("tuned on test data")
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert labels == {"infeasible", "pole $\\lambda' = 1 + \\eta$", "ML", "MMSE", "chosen"}


@pytest.mark.parametrize("points", [[(1.0, 0.0)], [(0.8, 0.0), (0.9, 0.0), (1.0, 0.0)], [(0, 0), (1, 0), (0.5, 1)]])
def test_any_set_of_trials_can_be_drawn(points: list[tuple[float, float]]) -> None:
    record: Record = {"method": "mmse_pb", "wnr_db": 3.0, "draw": 0, "lambda_prime": 1.0, "beta": 0.0}
    record |= {"trials": [[*point, 0.5, 1.0] for point in [*points, points[0]]] + [[9.0, 0.0, None, None]]}
    assert render(surface_figure([record]), "png")


def test_trials_that_all_failed_can_be_drawn() -> None:
    record: Record = {"method": "mmse_pb", "wnr_db": -9.0, "draw": 0, "trials": [[1.5, 0.0, None, None]]}
    assert render(surface_figure([record]), "png")


def test_a_misjudged_noise_moves_the_pole() -> None:
    record: Record = {"method": "mmse_pb", "wnr_db": 0.0, "draw": 0, "noise_variance": 1.0}
    record |= {"assumed_noise_variance": 2.0, "trials": [[x, y, 0.5, 1.0] for x in (0.0, 1.0, 1.8) for y in (-1, 1)]}
    lines = {line.get_label(): line for line in surface_figure([record]).axes[0].lines}
    assert lines["pole $\\lambda' = 1 + \\eta$"].get_xdata()[0] == pytest.approx(1.5)


def test_layers_stand_in_the_order_of_the_network(full_records: tuple[Record, ...]) -> None:
    found = layer_records(full_records, wnr_db=-6.3)
    assert len(found) == 3
    wnr, lambda_prime, beta = layers_figure(found).axes
    assert [label.get_text() for label in wnr.get_yticklabels()][:2] == ["stem", "block1.conv1"]
    means = wnr.lines[3].get_xdata()
    np.testing.assert_allclose(means, [-2.9, -10.0, -11.5, -13.2, 3.0])
    assert (lambda_prime.get_xlabel(), beta.get_xlabel()) == ("$\\lambda'$", "$\\beta$")


def test_a_layer_without_variance_keeps_its_row() -> None:
    record: Record = {"method": "x_layerwise", "wnr_db": -6.0, "draw": 0, "group_wnr_db": {"a": -math.inf, "b": 3.0}}
    record |= {"group_temperatures": {"a": [0.0, None], "b": [1.0, -2.0]}}
    axes = layers_figure([record]).axes[0]
    assert np.isnan(axes.lines[1].get_xdata()).tolist() == [True, False]


def test_records_without_searches_have_nothing_to_draw() -> None:
    found = [{"method": "ml", "wnr_db": 0.0, "draw": 0, "accuracy": 0.5, "trials": None}]
    assert surface_records(found) == ()
    assert layer_records(found) == ()
    assert len(curves(found)) == 1
