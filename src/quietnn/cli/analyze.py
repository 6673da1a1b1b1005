"""`quietnn analyze RUN`: what a sweep's records say."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quietnn.reports.figures import Style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quietnn.reports.analysis import Analysis
    from quietnn.reports.runs import Run


def analyze(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, each with a records.jsonl.", metavar="RUN...")],
    level: Annotated[
        float | None, typer.Option(help="Accuracy at which gains are read; by default 0.75 for sst2, else 0.6.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Read all runs together and write here; by default each run gets its own report, in place."),
    ] = None,
    style: Annotated[str, typer.Option(help="Look of the figures: screen or paper.")] = "screen",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON, one line for each report.")
    ] = False,
) -> None:
    """Turn records into curves, gains in dB with intervals, figures and one web page."""
    from quietnn.reports.federated_report import holds_federations, write_federated_report

    federated = [run for run in runs if holds_federations(run)]
    for run in federated:
        typer.echo("\n".join(write_federated_report(run, level=level, style=figure_style(style)).sentences))
        typer.echo(f"Wrote {run / 'summary.md'}, tables and figures beside it.")
    rest = [run for run in runs if run not in federated]
    if rest:
        report(rest, level=level, out=out, style=figure_style(style), as_json=as_json)


def report(
    runs: list[Path],
    *,
    level: float | None = None,
    out: Path | None = None,
    style: Style = "screen",
    as_json: bool = False,
) -> None:
    """Analyse runs, write their reports and print the findings; nothing is written before all of them are read."""
    from quietnn.records import encode
    from quietnn.reports.analysis import analyse, to_json
    from quietnn.reports.write import write_analysis

    groups = [(runs, out)] if out is not None else [([run], None) for run in runs]
    analyses = [(analyse(folders, level=level), place) for folders, place in groups]
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = shlex.join(["quietnn", *sys.argv[1:]])
    for analysis, place in analyses:
        say_versions(analysis.runs)
        where = place or analysis.runs[0].folder
        written = write_analysis(analysis, where, date=date, command=command, style=style)
        if as_json:
            typer.echo(encode(to_json(analysis) | {"files": [str(path) for path in written]}))
        else:
            _print(analysis)
            typer.echo(f"Wrote {where / 'report.html'} and {len(written) - 1} files beside it.")


def say_versions(runs: "Sequence[Run]") -> None:
    """Say on the error stream which runs hold records of another version."""
    from quietnn.records import other_versions

    for run in runs:
        if sentence := other_versions(run.records):
            typer.echo(f"{run.folder}: {sentence}", err=True)


def _print(analysis: "Analysis") -> None:
    from rich.console import Console
    from rich.text import Text

    from quietnn.cli.table import print_table
    from quietnn.reports.analysis import sentences
    from quietnn.reports.tables import accuracy_table, gain_table

    console = Console()
    for task in analysis.tasks:
        console.rule(Text(task.task), align="left")
        print_table(accuracy_table(task.curves), console)
        console.print()
        print_table(gain_table(task.curves, task.gains, task.level), console)
        console.print()
        for line in sentences(task):
            console.print(line, markup=False, highlight=False)


def figure_style(name: str) -> Style:
    """The style of that name.

    Raises:
        InvalidConfig: if there is none.
    """
    from quietnn.errors import InvalidConfig

    if name == "screen":
        return "screen"
    if name == "paper":
        return "paper"
    raise InvalidConfig(f"figure style {name!r} does not exist; choose screen or paper")
