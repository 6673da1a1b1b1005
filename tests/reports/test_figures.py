"""Figures: what they show, that they are the same each time, and that they leave nothing behind."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.accuracy_figure import Panel, accuracy_figure
from quietnn.reports.curves import curves, make_curve
from quietnn.reports.figures import drawing, save_figure, to_png, to_svg
from quietnn.reports.gains import gain_db
from quietnn.reports.layers_figure import layer_records, layers_figure
from quietnn.reports.surface_figure import surface_figure, surface_records

ML = make_curve("ml", [-8, -6, -4], [[0.2, 0.5, 0.9], [0.3, 0.6, 0.9]])
BETTER = make_curve("mmse_pb", [-8, -6, -4], [[0.5, 0.8, 0.95], [0.4, 0.7, 0.95]])
PANEL = Panel("digits", (ML, BETTER), 0.6, 0.98, ML, gain_db(BETTER, ML, 0.6))


def texts(axes: object) -> list[str]:
    return [text.get_text() for text in axes.texts]  # type: ignore[attr-defined]


def test_the_accuracy_figure_shows_means_bands_clean_line_and_gain() -> None:
    (axes,) = accuracy_figure([PANEL]).axes
    by_label = {line.get_label(): line for line in axes.lines}
    np.testing.assert_allclose(by_label["ML"].get_ydata(), [25, 55, 90])
    np.testing.assert_allclose(by_label["MMSE$_{pb}$"].get_ydata(), [45, 75, 95])
    assert "no noise, 98.0 %" in by_label
    assert len(axes.collections) == 2
    assert PANEL.gain is not None
    assert f"{PANEL.gain.gain_db:+.1f} dB at 60 %" in texts(axes)


def test_without_a_gain_only_the_level_is_marked() -> None:
    (axes,) = accuracy_figure([Panel("digits", (ML,), 0.6)]).axes
    assert texts(axes) == ["60 %"]


def test_a_panel_for_each_task() -> None:
    assert len(accuracy_figure([PANEL] * 3, style="paper").axes) == 3


@pytest.mark.parametrize("name", ["$broken$ {\\frac", "a $ b", "<script>&", "\\alpha_"])
def test_names_from_records_are_never_read_as_mathematics(name: str) -> None:
    hostile = make_curve("ml", [-8, -6], [[0.2, 0.5]], label=name)
    svg = to_svg(accuracy_figure([Panel(name, (hostile,), 0.6)]))
    ElementTree.fromstring(svg)
    assert "<script" not in svg


def test_the_same_figure_is_the_same_file_and_settings_are_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    pairs = [save_figure(accuracy_figure([PANEL]), tmp_path / name) for name in ("one", "two")]
    for one, other in zip(*pairs, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert dict(matplotlib.rcParams) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'poster' does not exist; choose one of screen, paper"), drawing("poster"):  # type: ignore[arg-type]
        pass


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
    assert to_png(surface_figure([record]))


def test_trials_that_all_failed_can_be_drawn() -> None:
    record: Record = {"method": "mmse_pb", "wnr_db": -9.0, "draw": 0, "trials": [[1.5, 0.0, None, None]]}
    assert to_png(surface_figure([record]))


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
