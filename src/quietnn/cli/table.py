"""A report's table on the terminal."""

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from quietnn.reports.tables import Table


def rich_table(table: Table) -> RichTable:
    """The table for a rich console: narrow enough for seven WNRs in 80 columns; cells are text, never markup."""
    shown = RichTable(
        title=Text(table.caption),
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, name in enumerate(table.header):
        left = index == 0 or name == "note"
        shown.add_column(Text(name), justify="left" if left else "right", no_wrap=name != "note", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell.replace(" ± ", "±")) for cell in row))
    return shown
