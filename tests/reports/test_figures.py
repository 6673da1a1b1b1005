"""What every figure shares: the same bytes each time, settings left alone, one look for each method."""

import matplotlib
import pytest

from quietnn.errors import InvalidConfig
from quietnn.reports.figures import (
    Figure,
    decibels,
    drawing,
    images,
    looks,
    mathtext,
    new_figure,
    settle,
    sized,
)


def drawn() -> Figure:
    with drawing("paper"):
        figure = new_figure(2.0, 1.0)
        figure.add_subplot().plot([1, 2], [3, 5])
        return settle(figure)


def test_the_same_figure_is_the_same_file_and_settings_are_left_alone() -> None:
    before = dict(matplotlib.rcParams)
    one, other = (images("curve", drawn(), ("png", "svg", "pdf")) for _ in range(2))
    assert list(one) == ["curve.png", "curve.svg", "curve.pdf"]
    assert one == other
    assert one["curve.pdf"].startswith(b"%PDF-")
    assert dict(matplotlib.rcParams) == before


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'poster' does not exist; choose screen or paper"), drawing("poster"):
        pass


def test_a_repeat_keeps_its_colour_and_changes_its_dash() -> None:
    first, oracle, again = looks(["mmse_pb", "mmse_pb_oracle", "mmse_pb"])
    assert (first["dash"], first["hollow"]) == ("-", False)
    assert oracle["hollow"]
    assert again == first | {"dash": "--", "hollow": True}


def test_a_height_shrinks_with_the_width_and_decibels_have_a_minus() -> None:
    assert sized("screen", wide=False, height=4.0) == (6.4, 4.0)
    assert sized("paper", wide=False, height=4.0) == (3.5, 2.625)
    assert decibels(-7.0) == "−7 dB"


def test_a_label_gets_its_subscript_and_a_dollar_stays_one() -> None:
    assert mathtext("MMSE_pb layerwise") == "MMSE$_{pb}$ layerwise"
    assert mathtext("MMSE_p") == "MMSE$_{p}$"
    assert mathtext("a $5 run") == r"a \$5 run"
