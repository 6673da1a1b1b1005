"""What verbs print: tables that cut no number, and words of strangers that a terminal does not obey."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from quietnn.checkpoints.selection import Selection
    from quietnn.reports.tables import Table

_MOST_NAMES = 8
_WRAPS = "note"
_GAP = 2


def plain(text: str) -> str:
    """The text without commands to the terminal, which are written with backslashes instead."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def plain_markup(text: str) -> str:
    """The same for a console that reads markup: brackets are letters."""
    return escape(plain(text))


def show_selection(selection: "Selection") -> None:
    """Say on the error stream which tensors count as noisy; `quietnn inspect` has the whole list."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    for kind, names in (("noisy", selection.noisy), ("untouched", selection.untouched)):
        if names or kind == "noisy":
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            console.print(f"{kind}: {len(names)} tensors: {plain_markup(', '.join(names[:_MOST_NAMES]) + more)}")
    console.print("[dim]choose otherwise with --noisy 'PATTERN' and --exclude 'PATTERN'[/]")


def print_table(table: "Table", console: Console) -> None:
    """Print the table; one too wide for the console continues below, so that no number is ever cut.

    Cells are text, never markup.
    """
    console.print(Text(plain(table.caption), style="bold"))
    cells = [[plain(cell.replace(" ± ", "±")) for cell in row] for row in (table.header, *table.rows)]
    for columns in _blocks(cells, console.width):
        console.print(_block(cells, columns))


def _blocks(cells: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Which columns stand side by side: the first one in every block, the others as they fit."""
    widths = [max(cell_len(row[column]) for row in cells) + _GAP for column in range(len(cells[0]))]
    blocks, used = [[0]], widths[0]
    for column in range(1, len(widths)):
        needed = min(widths[column], 16) if cells[0][column] == _WRAPS else widths[column]
        if used + needed > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(column)
        used += needed
    return blocks


def _block(cells: Sequence[Sequence[str]], columns: Sequence[int]) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for column in columns:
        name = cells[0][column]
        left = column == 0 or name == _WRAPS
        shown.add_column(Text(name), justify="left" if left else "right", overflow="fold", no_wrap=name != _WRAPS)
    for row in cells[1:]:
        shown.add_row(*(Text(row[column]) for column in columns))
    return shown
