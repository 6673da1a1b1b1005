"""Tables and the ways to write them."""

import csv
import io
import math
from collections.abc import Callable

from tests.reports.shortcuts import make_curve

from quietnn.records import Record
from quietnn.reports.gains import Gain, gain_db
from quietnn.reports.tables import (
    Table,
    accuracy_table,
    cost_table,
    gain_table,
    interval_text,
    to_csv,
    to_latex,
    to_markdown,
)

NASTY = Table("A & B", ("method", "x|y"), (("<script>alert(1)</script>", "a|b\n50 % of {_}"),))


def test_missing_and_partial_cells_are_marked() -> None:
    curves = [
        make_curve("ml", [-2, 0], [[0.5, 0.8], [0.7, 0.9]]),
        make_curve("mmse", [0, 2], [[0.4, 0.5], [math.nan, 0.7]]),
    ]
    table = accuracy_table(curves)
    assert table.header == ("method", "-2 dB", "0 dB", "2 dB")
    assert table.rows == (
        ("ML", "60.0 ± 14.1", "85.0 ± 7.1", "–"),
        ("MMSE", "–", "40.0 (1 of 2)", "60.0 ± 14.1"),
    )
    assert "2 noise draws" in table.caption


def test_a_zero_bears_no_minus_and_an_open_end_is_shown() -> None:
    assert interval_text(Gain(0.6, 0.1, -0.001, 0.2, 9, "")) == "0.00 to 0.20"
    assert interval_text(Gain(0.6, 0.1, -math.inf, math.inf, 9, "")) == "-∞ to ∞"
    assert interval_text(Gain(0.6, 0.1, None, None, 1, "")) == "–"


def test_one_draw_has_no_deviation() -> None:
    table = accuracy_table([make_curve("ml", [0], [[0.612]])])
    assert table.rows == (("ML", "61.2"),)
    assert "one draw (no deviation)" in table.caption


def test_gains_stand_beside_the_wnr_they_come_from() -> None:
    ml = make_curve("ml", [0, 10], [[0.0, 1.0], [0.0, 1.0]])
    better = make_curve("mmse_pb", [0, 10], [[0.2, 1.0], [0.2, 1.0]])
    never = make_curve("mmse", [0, 10], [[0.0, 0.1], [0.0, 0.1]])
    table = gain_table([ml, better, never], [None, gain_db(better, ml, 0.6), gain_db(never, ml, 0.6)], 0.6)
    assert table.header[3] == "95 % interval"
    assert table.rows == (
        ("ML", "6.00", "–", "–", "2", ""),
        ("MMSE_pb", "5.00", "+1.00", "1.00 to 1.00", "2", "interval covers at most 50 %"),
        ("MMSE", "–", "–", "–", "2", "MMSE stays below 60 % up to 10 dB"),
    )


def test_cost_is_the_mean_over_results(make_records: Callable[..., list[Record]]) -> None:
    rows = {row[0]: row[1:] for row in cost_table(make_records(num_draws=1, wnrs=(-6.0,))).rows}
    assert rows["ML"] == ("0", "0.02")
    assert rows["MMSE_pb layerwise"] == ("160", "4.20")
    assert "clean" not in rows


def test_markdown_has_its_caption_first() -> None:
    assert to_markdown(Table("Two", ("a", "b"), (("x", "1"),))) == "**Two**\n\n| a | b |\n|---|---|\n| x | 1 |"


def test_notes_stand_below_the_table_each_once() -> None:
    rows = (("x", "1", "few; draws"), ("y", "2", ""), ("z", "3", "few; draws"), ("u", "4", "<none>"))
    assert to_markdown(Table("Two", ("a", "b", "note"), rows)).splitlines()[4:] == [
        *("| x | 1 | ¹ |", "| y | 2 |  |", "| z | 3 | ¹ |", "| u | 4 | ² |"),
        *("", "- ¹ Few; draws.", "- ² &lt;none>."),
    ]


def test_markdown_keeps_hostile_cells_inside_their_cell() -> None:
    lines = to_markdown(NASTY).splitlines()
    assert lines[2:] == [
        "| method | x\\|y |",
        "|---|---|",
        "| &lt;script>alert(1)&lt;/script> | a\\|b 50 % of {_} |",
    ]


def test_latex_escapes_its_signs() -> None:
    shown = to_latex(NASTY)
    assert r"50 \% of \{\_\}" in shown
    assert to_latex(Table("Two", ("a", "b"), (("x_p", "1 ± 2"),))).splitlines() == [
        "% Two",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"a & b \\",
        r"\midrule",
        r"x\_p & $1 \pm 2$ \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_reads_back() -> None:
    assert list(csv.reader(io.StringIO(to_csv(NASTY)))) == [list(NASTY.header), list(NASTY.rows[0])]
