"""What verbs print: no number is cut, and no name in a file gives a command to the terminal."""

from io import StringIO

import pytest
from rich.console import Console

from quietnn.checkpoints.selection import Selection
from quietnn.cli.terminal import plain_markup, print_table, show_selection
from quietnn.reports.tables import Table


def test_a_table_too_wide_continues_below_under_its_first_column() -> None:
    table = Table("Two \x1b[31mblocks", ("method", "a wide column", "another one"), (("[ml]", "1.0 ± 0.1", "2.0"),))
    console = Console(width=30, file=StringIO(), record=True)
    print_table(table, console)
    text = console.export_text()
    assert text.count("[ml]") == 2
    assert "1.0±0.1" in text
    assert r"Two \x1b[31mblocks" in text


def test_markup_of_strangers_stays_text() -> None:
    assert plain_markup("[bold]\a") == r"\[bold]\x07"


def test_a_long_selection_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    show_selection(Selection(tuple(f"layer{number}" for number in range(11)), ()))
    told = capsys.readouterr().err
    assert "noisy: 11 tensors: layer0," in told
    assert "layer7 and 3 more" in told
    assert "untouched" not in told
