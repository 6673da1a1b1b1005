"""Verbs that read records: `quietnn analyze`, `quietnn report` and `quietnn figures`."""

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quietnn.cli import options

if TYPE_CHECKING:
    from quietnn.reports.analysis import Analysis
    from quietnn.reports.runs import Run


def analyze(
    runs: options.Runs,
    level: options.Level = None,
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
    from quietnn.reports.write import write_federated_report

    rest = []
    for run in runs:
        if said := write_federated_report(run, level=level, style=style):
            typer.echo("\n".join([*said, f"Wrote {run / 'summary.md'}, tables and figures beside it."]))
        else:
            rest.append(run)
    if rest:
        report_inference(rest, level=level, out=out, style=style, as_json=as_json)


def report_inference(
    runs: list[Path],
    *,
    level: float | None = None,
    out: Path | None = None,
    style: str = "screen",
    as_json: bool = False,
) -> None:
    """Analyse runs, write their reports and print the findings; nothing is written before all of them are read."""
    from quietnn.records import encode
    from quietnn.reports.analysis import analyse_runs, to_json
    from quietnn.reports.runs import load_run
    from quietnn.reports.write import write_analysis

    groups = [(runs, out)] if out is not None else [([run], None) for run in runs]
    analyses = [(analyse_runs(list(map(load_run, folders)), level=level), place) for folders, place in groups]
    for analysis, place in analyses:
        _say_versions(analysis.runs)
        where = place or analysis.runs[0].folder
        written = write_analysis(analysis, where, date=_now(), command=_command(), style=style)
        if as_json:
            typer.echo(encode(to_json(analysis) | {"files": [str(path) for path in written]}))
        else:
            _print(analysis)
            typer.echo(f"Wrote {where / 'report.html'} and {len(written) - 1} files beside it.")


def _print(analysis: "Analysis") -> None:
    from rich.console import Console
    from rich.text import Text

    from quietnn.cli.terminal import print_table
    from quietnn.reports.analysis import sentences, task_tables

    console = Console()
    for task in analysis.tasks:
        tables = task_tables(task)
        console.rule(Text(task.task), align="left")
        for name in (task.quantity.name, "gains"):
            print_table(tables[name], console)
            console.print()
        for line in sentences(task):
            console.print(line, markup=False, highlight=False)


def report(
    runs: options.Runs,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; by default report.html in the run, or here for several runs."),
    ] = None,
    level: options.Level = None,
    live: Annotated[bool, typer.Option("--live", help="Serve the page on this machine while the runs go on.")] = False,
    port: Annotated[int, typer.Option(help="With --live, the port; 0 takes a free one.")] = 8765,
) -> None:
    """Show all results of runs on one self-contained page: curves, surfaces, layers, tables, settings."""
    from quietnn.errors import InvalidConfig
    from quietnn.reports.page.document import write_report

    if live:
        if out is not None:
            raise InvalidConfig(f"--live serves the page and writes no file; leave out --out {out}, or --live")
        _serve(runs, level=level, port=port)
        return
    read = _read(runs)
    where = _place(read, out, "report.html")
    if where.is_dir():
        raise InvalidConfig(f"--out is {where}, which is a folder; name the file, for example {where / 'report.html'}")
    write_report(where, read, level=level, written=_now(), command=_command())
    typer.echo(f"Wrote {where} ({where.stat().st_size / 1e6:.1f} MB); it opens in any browser, without a network.")


def _serve(runs: list[Path], *, level: float | None, port: int) -> None:
    import signal
    import threading

    from quietnn.errors import InvalidConfig, MissingData
    from quietnn.reports.page.live import LiveServer, Watch

    for run in runs:
        if not run.is_dir():
            raise MissingData(f"there is no run folder {run}; start the run first, or mkdir {shlex.quote(str(run))}")
    try:
        server = LiveServer(Watch(runs, level=level, command=_command()), port=port)
    except (OSError, OverflowError) as error:
        raise InvalidConfig(
            f"port {port} cannot be used ({error}); choose another --port, or 0 for a free one"
        ) from error
    with server.running():
        stop = threading.Event()
        # Said outright, for a shell makes what it starts in the background deaf to Ctrl-C.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        typer.echo(f"The page is at {server.address} and follows {', '.join(map(str, runs))}; stop it with Ctrl-C.")
        stop.wait()
    typer.echo("Stopped. To keep the page: quietnn report " + shlex.join(map(str, runs)))


def figures(
    runs: options.Runs,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; by default figures/ in the run, or here for several.")
    ] = None,
    style: Annotated[str, typer.Option(help="paper (a journal's columns, serif) or screen.")] = "paper",
    formats: Annotated[str, typer.Option("--formats", help="Of pdf, svg and png, with commas.")] = "pdf,svg,png",
    level: options.Level = None,
) -> None:
    """Draw accuracy, surfaces, layers and theory in the paper's layout, as PDF, SVG and PNG."""
    from quietnn.reports.write import publication_figures, write_figures

    read = _read(runs)
    drawn = publication_figures(read, style=style, level=level)
    kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
    for path in write_figures(drawn, _place(read, out, "figures"), formats=kinds):
        typer.echo(str(path))


def _read(runs: list[Path]) -> "list[Run]":
    from quietnn.reports.runs import read_run

    read = [read_run(run) for run in runs]
    _say_versions(read)
    return read


def _say_versions(runs: "Sequence[Run]") -> None:
    """Say on the error stream which runs hold records of another version."""
    from quietnn.records import other_versions

    for run in runs:
        if sentence := other_versions(run.records):
            typer.echo(f"{run.folder}: {sentence}", err=True)


def _place(runs: "Sequence[Run]", out: Path | None, name: str) -> Path:
    """Where the user said; else under a name in the run, or here for several runs."""
    return out or (runs[0].folder if len(runs) == 1 else Path()) / name


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _command() -> str:
    return shlex.join(["quietnn", *sys.argv[1:]])
