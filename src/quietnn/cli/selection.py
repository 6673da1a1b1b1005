"""Say which tensors of a file count as noisy, before anything is written."""

from rich.console import Console

from quietnn.checkpoints.selection import Selection
from quietnn.cli.plain import plain_markup

_SHOWN = 8


def show_selection(selection: Selection) -> None:
    """Two lines on the error stream; `quietnn inspect` has the whole list."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    console.print(f"noisy: {len(selection.noisy)} tensors: {plain_markup(_some(selection.noisy))}")
    if selection.untouched:
        console.print(f"untouched: {len(selection.untouched)} tensors: {plain_markup(_some(selection.untouched))}")
    console.print("[dim]choose otherwise with --noisy 'PATTERN' and --exclude 'PATTERN'[/]")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
