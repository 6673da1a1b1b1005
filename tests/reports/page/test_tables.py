"""Numbers and records on their way to the page."""

from collections.abc import Callable

import pytest

from quietnn.records import Record
from quietnn.reports.page.tables import results_payload, table_payload
from quietnn.reports.tables import Table

Make = Callable[..., list[Record]]


def test_records_are_columns_and_lists_are_left_to_the_figures(make_records: Make) -> None:
    records = make_records(num_draws=2)
    (table,) = results_payload(records, most_rows=1000)
    columns = {column["name"]: column for column in table["columns"]}
    assert table["numRows"] == len(records)
    assert columns["wnr_db"]["numbers"][0] == "inf"
    assert columns["accuracy"]["numbers"][5] == pytest.approx(records[5]["accuracy"], rel=1e-8)
    method = columns["method"]
    assert [method["words"][code] for code in method["codes"]] == [record["method"] for record in records]
    assert not columns.keys() & {"trials", "group_temperatures", "experiment"}


def test_rows_that_are_left_out_are_said(make_records: Make) -> None:
    (table,) = results_payload(make_records(num_draws=1, with_trials=False), most_rows=2)
    assert table["numRows"] == 2
    assert table["notice"].startswith("The first 2 of 43 records")


def test_a_table_brings_its_files() -> None:
    found = table_payload(Table("Two", ("a", "b"), (("x", "1"),)))
    assert found["csv"] == "a,b\nx,1\n"
    assert found["latex"].endswith("\\end{tabular}\n")
