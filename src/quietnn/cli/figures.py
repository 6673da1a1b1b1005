"""`quietnn figures RUN`: the figures of a run, ready for a paper."""

from pathlib import Path
from typing import Annotated

import typer


def figures(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, each with a records.jsonl.", metavar="RUN...")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; by default figures/ in the run, or here for several.")
    ] = None,
    style: Annotated[str, typer.Option(help="paper (a journal's columns, serif) or screen.")] = "paper",
    formats: Annotated[str, typer.Option("--formats", help="Of pdf, svg and png, with commas.")] = "pdf,svg,png",
    level: Annotated[
        float | None, typer.Option(help="Accuracy at which gains are read; by default 0.75 for sst2, else 0.6.")
    ] = None,
) -> None:
    """Draw accuracy, surfaces, layers and theory in the paper's layout, as PDF, SVG and PNG."""
    from quietnn.cli.analyze import figure_style, say_versions
    from quietnn.reports.publication import publication_figures, write_figures
    from quietnn.reports.runs import read_run

    read = [read_run(run) for run in runs]
    say_versions(read)
    where = out or (read[0].folder if len(read) == 1 else Path()) / "figures"
    drawn = publication_figures(read, style=figure_style(style), level=level)
    kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
    for path in write_figures(drawn, where, formats=kinds):
        typer.echo(str(path))
