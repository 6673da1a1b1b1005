"""`quietnn report RUN...`: one page for one or more runs, to keep or live."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, each with a records.jsonl.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; by default report.html in the run, or here for several runs."),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="Accuracy at which gains are read; by default 0.75 for sst2, else 0.6.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Serve the page on this machine while the runs go on.")] = False,
    port: Annotated[int, typer.Option(help="With --live, the port; 0 takes a free one.")] = 8765,
) -> None:
    """Put everything that runs found on one self-contained page: curves, surfaces, layers, tables, what ran."""
    from quietnn.errors import InvalidConfig

    if live and out is not None:
        raise InvalidConfig(f"--live serves the page and writes no file; leave out --out {out}, or --live")
    if live:
        _serve(runs, level=level, port=port)
        return
    from quietnn.cli.analyze import say_versions
    from quietnn.reports.page.document import write_report
    from quietnn.reports.runs import read_run

    read = [read_run(run) for run in runs]
    say_versions(read)
    where = out or (read[0].folder if len(read) == 1 else Path()) / "report.html"
    if where.is_dir():
        raise InvalidConfig(f"--out is {where}, which is a folder; name the file, for example {where / 'report.html'}")
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_report(where, read, level=level, written=written, command=_command())
    typer.echo(f"Wrote {where} ({where.stat().st_size / 1e6:.1f} MB); it opens in any browser, without a network.")


def _serve(runs: list[Path], *, level: float | None, port: int) -> None:
    import signal
    import threading

    from quietnn.errors import InvalidConfig, MissingData
    from quietnn.reports.live.server import LiveServer
    from quietnn.reports.live.watch import Watch

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


def _command() -> str:
    return shlex.join(["quietnn", *sys.argv[1:]])
