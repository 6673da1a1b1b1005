"""`quietnn theory`: every closed form beside a simulation, and the paper's theory figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quietnn.records import Record

_HEADINGS = {
    "quadratic": "Theorem 1, quadratic",
    "shallow": "Theorem 2, tanh",
    "lemma 1": "Lemma 1",
}


def theory(
    out: Annotated[Path, typer.Option(help="Directory for records.jsonl and the figures.")] = Path("quietnn-theory"),
    seed: Annotated[int, typer.Option(help="Seed of the simulations and of the random settings.")] = 0,
    samples: Annotated[int, typer.Option(help="Draws per simulated number.")] = 200_000,
    json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON lines and nothing else.")] = False,
) -> None:
    """Check both theorems against simulation and draw the paper's figures 2, 3, 5 and 6."""
    from rich.console import Console

    from quietnn.errors import InvalidConfig
    from quietnn.experiments.theory_checks import TheoryChecks
    from quietnn.records import encode
    from quietnn.reports.theory_figures import draw_theory_figures

    if out.exists() and not out.is_dir():
        raise InvalidConfig(f"--out is {out}, which is a file; it must be a directory, new or old")
    progress = Console(stderr=True)
    with progress.status("simulating both networks"):
        records = list(TheoryChecks(seed=seed, num_samples=samples).run())
    with progress.status("drawing the figures"):
        _write_records(out / "records.jsonl", records)
        figures = draw_theory_figures(records, out)
    checks = [record for record in records if record["kind"] == "check"]
    if json:
        for record in checks:
            print(encode(record))
        return
    console = Console()
    console.print(_table(checks))
    console.print(f"Records and {len(figures)} figure files are in {out}/", highlight=False, soft_wrap=True)


def _table(checks: Sequence[Record]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(
        title="Closed form against Monte Carlo; z is in standard errors",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("setting", no_wrap=True)
    for name in ("closed", "Monte Carlo", "z", "printed", "z"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for record in checks:
        if record["network"] != previous:
            previous = record["network"]
            table.add_row(f"[bold]{_HEADINGS[previous]}[/]")
        table.add_row(
            f" {record['setting']}",
            f"{record['closed_form']:.4g}",
            f"{record['monte_carlo']:.4g} ± {record['standard_error']:.1g}",
            _coloured(record["z"]),
            f"{record['printed']:.4g}",
            _coloured(record["z_printed"]),
        )
    return table


def _coloured(z: float) -> str:
    """Beyond four standard errors the two disagree."""
    text = f"{z:+.1f}" if abs(z) < 100 else f"{z:+.0f}"
    return f"[red]{text}[/]" if abs(z) > 4 else text


def _write_records(path: Path, records: Sequence[Record]) -> None:
    """Replace the file as a whole: an older run's records are not mixed in."""
    from quietnn.files import write_whole
    from quietnn.records import encode

    write_whole(path, "".join(encode(record) + "\n" for record in records).encode())
