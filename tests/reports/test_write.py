"""Reports on the disk: every file, twice the same, and figures for a paper."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reports.shortcuts import analyse

from quietnn.errors import MissingData
from quietnn.records import Record
from quietnn.reports.runs import Run
from quietnn.reports.write import publication_figures, write_analysis, write_figures

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


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


def test_everything_is_written_and_twice_the_same(
    full_records: tuple[Record, ...], write_run: Write, tmp_path: Path
) -> None:
    analysis = analyse(write_run(tmp_path / "run", full_records))
    written = write_analysis(analysis, tmp_path / "one", command="quietnn analyze run", date="2024-02-29")
    assert {path.name for path in written} == {
        *("summary.md", "tables.tex", "report.html", "accuracy.csv", "gains.csv", "cost.csv"),
        *(f"{name}.{kind}" for name in ("accuracy", "surface", "layers") for kind in ("png", "svg")),
    }
    again = write_analysis(analysis, tmp_path / "two", command="quietnn analyze run", date="2024-02-29")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]


def test_a_run_named_like_a_script_stays_text(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    records = make_records(run=evil, task=evil, methods=("ml", evil), num_draws=2, with_trials=False)
    write_analysis(analyse(write_run(tmp_path / "run", records)), tmp_path / "out")
    for name in ("summary.md", "accuracy.svg"):
        assert "<script" not in (tmp_path / "out" / name).read_text()
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()


def test_tasks_get_files_of_their_own(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    methods = ("ml", "mmse")
    one = write_run(tmp_path / "a", make_records(run="a", methods=methods, num_draws=2))
    two = write_run(tmp_path / "b", make_records(run="b", task="../x/y", methods=methods, num_draws=2))
    names = {path.name for path in write_analysis(analyse(one, two), tmp_path / "out")}
    assert {"accuracy.png", "accuracy-digits.png", "accuracy-x-y.png", "gains-x-y.csv"} <= names
