"""Each erratum's evidence, and the page made of it."""

import re
from pathlib import Path

import pytest

from quietnn.theory.errata import Erratum, all_errata, render


@pytest.fixture(scope="module")
def errata() -> tuple[Erratum, ...]:
    return all_errata()


def test_committed_page_is_what_the_code_says(errata: tuple[Erratum, ...]) -> None:
    page = Path(__file__).parents[2] / "docs" / "errata.md"
    assert page.read_text(encoding="utf-8") == render(errata), "run `python -m quietnn.theory.errata > docs/errata.md`"


def test_numbers_run_from_one(errata: tuple[Erratum, ...]) -> None:
    assert re.findall(r"^## (\d+)\. ", render(errata), re.M) == [str(number) for number in range(1, len(errata) + 1)]


def test_corrected_values_agree_with_what_was_measured(errata: tuple[Erratum, ...]) -> None:
    for number, erratum in enumerate(errata, 1):
        for row in erratum.measurements:
            allowed = 4 * row.standard_error if row.standard_error is not None else 5e-3 * abs(row.corrected)
            assert abs(row.corrected - row.measured) < allowed, (number, row)


@pytest.mark.parametrize(("number", "row"), [(1, 0), (3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1), (5, 3), (7, 0)])
def test_printed_values_disagree(errata: tuple[Erratum, ...], number: int, row: int) -> None:
    measurement = errata[number - 1].measurements[row]
    assert measurement.printed is not None
    assert measurement.standard_error is not None
    assert abs(measurement.printed - measurement.measured) > 4 * measurement.standard_error


def test_p4_is_a_saddle_and_the_printed_slope_is_wrong(errata: tuple[Erratum, ...]) -> None:
    determinant, slope = errata[1].measurements
    assert determinant.measured < 0
    assert slope.printed is not None
    assert abs(slope.printed - slope.measured) > 1


def test_strong_noise_makes_other_points_better_than_p3(errata: tuple[Erratum, ...]) -> None:
    p3, p2, edge = errata[5].measurements
    for better in (p2, edge):
        assert better.standard_error is not None
        assert p3.measured - better.measured > 10 * better.standard_error
