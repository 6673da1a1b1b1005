"""Names and looks of methods."""

from pathlib import Path

from quietnn.experiments.methods import EXPERIMENTAL
from quietnn.methods import METHODS, NEEDS, rank, style_of
from quietnn.repairs.base import REPAIRS


def test_no_two_known_methods_look_alike_in_colour_or_in_grey() -> None:
    assert len({look.colour for look in METHODS.values()}) == len(METHODS)
    assert len({look.marker for look in METHODS.values()}) == len(METHODS)
    assert len({look.label for look in METHODS.values()}) == len(METHODS)


def test_every_method_that_a_sweep_can_run_has_a_look_of_its_own() -> None:
    assert {*REPAIRS, *EXPERIMENTAL} <= set(METHODS)


def test_the_row_of_a_repair_is_the_row_of_its_looks() -> None:
    assert all(row.method is METHODS[name] for name, row in REPAIRS.items())
    assert all(look.needs in NEEDS and look.reference for look in METHODS.values())


def test_the_pages_that_methods_refer_to_are_there() -> None:
    root = Path(__file__).parents[1]
    pages = {look.reference for look in METHODS.values() if look.reference.endswith(".md")}
    assert pages
    assert [page for page in sorted(pages) if not (root / page).is_file()] == []


def test_an_oracle_is_always_called_one() -> None:
    assert all("oracle" in style_of(name).label for name in ("mmse_pb_oracle", "calibration_oracle"))


def test_an_unknown_method_goes_by_its_name_and_comes_last() -> None:
    assert style_of("brand_new") == style_of("brand_new")
    assert style_of("brand_new").label == "brand_new"
    assert rank("brand_new") > max(map(rank, METHODS))
