"""`quietnn gaussianity`: how well the Gaussian prior fits a network's weights."""

from pathlib import Path
from typing import Annotated

import typer


def gaussianity(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network> or sst2/<encoder>")],
    wnr_db: Annotated[float, typer.Option(help="WNR of the whole model, in dB; sets the noise.")] = 0.0,
    weights: Annotated[Path | None, typer.Option(help="Other weights for the same network.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data and weights are, else $QUIETNN_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder to write records.jsonl and table.md to.")] = None,
) -> None:
    """Compare each layer's weights with a Gaussian and say what that prior costs at a noise power."""
    from rich.console import Console

    from quietnn import records
    from quietnn.cli.table import print_table
    from quietnn.experiments import weight_studies
    from quietnn.files import write_together
    from quietnn.reports.tables import Table, to_markdown

    found = list(weight_studies.gaussianity(task, wnr_db, weights=weights, data_dir=data_dir))
    rows = tuple(
        (
            record["layer"] or "whole model",
            f"{record['num_weights']:,}",
            f"{record['wnr_db']:+.1f}",
            f"{record['excess_kurtosis']:+.2f}",
            f"{record['distance']:.3f}",
            f"{record['cost_db']:.2f}",
        )
        for record in found
    )
    header = ("layer", "weights", "WNR (dB)", "excess kurtosis", "KS distance", "prior's cost (dB)")
    table = Table(f"{task} at {wnr_db:g} dB: how Gaussian the weights are", header, rows)
    if out is not None:
        lines = "".join(records.encode(record) + "\n" for record in found)
        write_together(out, {"records.jsonl": lines.encode(), "table.md": (to_markdown(table) + "\n").encode()})
    print_table(table, Console())
