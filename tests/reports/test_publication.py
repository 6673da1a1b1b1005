"""Figures for a paper."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quietnn.errors import MissingData
from quietnn.records import Record
from quietnn.reports.publication import publication_figures, write_figures
from quietnn.reports.runs import Run


def test_every_figure_has_the_width_of_a_column_or_of_the_page(full_records: tuple[Record, ...]) -> None:
    figures = publication_figures([Run("digits", Path(), {}, full_records)])
    assert {name: figure.get_size_inches()[0] for name, figure in figures.items()} == {
        "accuracy": 3.5,
        "surface": 7.16,
        "layers": 7.16,
    }


def test_training_brings_its_rounds(tmp_path: Path) -> None:
    common = {"experiment": "noisy_training", "task": "digits", "tested_rounds": [1, 2], "round_accuracy": [0.2, 0.6]}
    records = [
        common | {"method": method, "wnr_db": wnr_db, "draw": draw, "seed": draw, "accuracy": 0.6}
        for method in ("ml", "mmse")
        for wnr_db in (-4.0, 0.0)
        for draw in (0, 1)
    ]
    figures = publication_figures([Run("fl", Path(), {}, tuple(records))])
    assert set(figures) == {"training-digits", "rounds-digits"}


def test_the_same_records_give_the_same_bytes(make_records: Callable[..., list[Record]], tmp_path: Path) -> None:
    run = Run("digits", Path(), {}, tuple(make_records(methods=("ml", "mmse"), num_draws=2)))
    written = [
        write_figures(publication_figures([run]), tmp_path / name, formats=("pdf", "svg")) for name in ("a", "b")
    ]
    assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]


def test_records_without_a_figure_say_so() -> None:
    with pytest.raises(MissingData, match="allow no figure"):
        publication_figures([Run("g", Path("g"), {}, ({"experiment": "gaussianity"},))])
