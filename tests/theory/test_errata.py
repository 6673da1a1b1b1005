"""Each erratum's evidence, and the page that holds it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from quietnn.theory.errata import (
    NUM_SAMPLES_QUADRATIC,
    NUM_SAMPLES_SHALLOW,
    PAPER_SHALLOW,
    SEED,
    Table,
    all_errata,
    render,
)
from quietnn.theory.quadratic import QuadraticNetwork
from quietnn.units import ratio_to_db

PAGE = (Path(__file__).parents[2] / "docs" / "how-it-works" / "errata.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def errata() -> tuple[Table, ...]:
    return all_errata()


def test_the_tables_of_the_page_are_what_the_code_says(errata: tuple[Table, ...]) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", PAGE, re.M)
    assert tables == [render(table) for table in errata], "copy them from `python -m quietnn.theory.errata`"


def test_every_erratum_has_its_number_its_claims_and_its_table(errata: tuple[Table, ...]) -> None:
    numbers = [str(number) for number in range(1, len(errata) + 1)]
    sections = r"^## (\d+)\. .+\n\n\*Where:\* .+\n\n\*Printed:\* .+\n\n\*Right:\* .+\n\n\| quantity"
    assert re.findall(sections, PAGE, re.M) == numbers


def test_the_settings_on_the_page_are_those_of_the_code() -> None:
    settings = (
        f"use {NUM_SAMPLES_QUADRATIC:,} draws for the quadratic network, {NUM_SAMPLES_SHALLOW:,} for the tanh network, "
        f"and seed {SEED}"
    )
    assert settings in PAGE


def ratio(input_limit: float) -> float:
    """The exact ML error of the tanh network over the printed one."""
    network = replace(PAPER_SHALLOW, input_limit=input_limit)
    return network.ml_error() / network.ml_error("printed")


def test_how_far_the_printed_ml_error_of_the_tanh_network_is_off() -> None:
    claim = r"(\S+) times the printed one as c -> 0 and (\S+) times at c = 0.2; they cross at c = (\S+),"
    small, larger, crossing = (float(number) for number in re.findall(claim, PAGE)[0])
    assert small == round(ratio(1e-3), 2)
    assert larger == round(ratio(0.2), 2)
    assert ratio(crossing - 0.0005) > 1 > ratio(crossing + 0.0005)


def test_from_which_noise_on_p3_is_not_the_optimum() -> None:
    network = QuadraticNetwork(weight_variance=1.0, noise_variance=5.0, dimension=5, offset=0.1)
    root = (network.a / network.b) ** 0.5
    limits = (root, root**2 + root)
    decibels = [f"{-ratio_to_db(limit):.1f} dB" for limit in limits]
    claim = f"limits are {limits[0]:.2f} and {limits[1]:.2f}, a WNR of {decibels[0]} and {decibels[1]}"
    assert claim in PAGE


def test_where_the_best_temperature_of_the_tanh_network_lies() -> None:
    theta, shrinkage = PAPER_SHALLOW.optimal_theta(), PAPER_SHALLOW.optimal_theta("leading")
    claim = f"`theta* = {theta:.3f} < sw/S = {shrinkage:.3f}`, `lambda'* = {PAPER_SHALLOW.optimal_lambda_prime():.3f}`"
    assert claim in PAGE


def test_corrected_values_agree_with_what_was_measured(errata: tuple[Table, ...]) -> None:
    for number, table in enumerate(errata, 1):
        for row in table:
            allowed = 4 * row.standard_error if row.standard_error is not None else 5e-3 * abs(row.corrected)
            assert abs(row.corrected - row.measured) < allowed, (number, row)


@pytest.mark.parametrize(("number", "row"), [(1, 0), (3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1), (5, 3), (7, 0)])
def test_printed_values_disagree(errata: tuple[Table, ...], number: int, row: int) -> None:
    measurement = errata[number - 1][row]
    assert measurement.printed is not None
    assert measurement.standard_error is not None
    assert abs(measurement.printed - measurement.measured) > 4 * measurement.standard_error


def test_p4_is_a_saddle_and_the_printed_slope_is_wrong(errata: tuple[Table, ...]) -> None:
    determinant, slope = errata[1]
    assert determinant.measured < 0
    assert slope.printed is not None
    assert abs(slope.printed - slope.measured) > 1


def test_strong_noise_makes_other_points_better_than_p3(errata: tuple[Table, ...]) -> None:
    p3, p2, edge = errata[5]
    for better in (p2, edge):
        assert better.standard_error is not None
        assert p3.measured - better.measured > 10 * better.standard_error
