"""What every figure shares: the same bytes each time, settings left alone, one look for each method."""

import matplotlib
import pytest

from quietnn.errors import InvalidConfig
from quietnn.reports.figures import Figure, drawing, images, looks, new_figure, settle, style_named


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
    assert style_named("paper") == "paper"
    with pytest.raises(InvalidConfig, match="'poster' does not exist; choose screen or paper"):
        style_named("poster")


def test_a_repeat_keeps_its_colour_and_changes_its_dash() -> None:
    first, oracle, again = looks(["mmse_pb", "mmse_pb_oracle", "mmse_pb"])
    assert (first["dash"], first["hollow"]) == ("-", False)
    assert oracle["hollow"]
    assert again == first | {"dash": "--", "hollow": True}
