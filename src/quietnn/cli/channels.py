"""Verbs that compare with a Gaussian: the weights in `quietnn gaussianity`, the error in `quietnn channels`."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quietnn.cli import options
from quietnn.records import Record

_WEIGHTS = {
    "layer": "{layer}",
    "weights": "{num_weights:,}",
    "WNR (dB)": "{wnr_db:+.1f}",
    "excess kurtosis": "{excess_kurtosis:+.2f}",
    "KS distance": "{distance:.3f}",
    "prior's cost (dB)": "{cost_db:.2f}",
}
_ERRORS = {
    "channel": "{channel}",
    "WNR (dB)": "{effective_wnr_db:+.1f}",
    "gain": "{gain:.3f}",
    "correlation with w": "{correlation:+.2f}",
    "error^2 / told": "{squared_over_told:.3f}",
    "excess kurtosis": "{excess_kurtosis:+.2f}",
    "the same by told std": "{excess_kurtosis_by_told:+.2f}",
    "KS distance": "{distance:.3f}",
    "channel uses": "{rate:.3f}",
}
"""Columns, and how each is made of a record."""


def gaussianity(
    task: options.TaskName,
    wnr_db: Annotated[float, typer.Option(help="WNR of the whole model, in dB; sets the noise.")] = 0.0,
    weights: options.OtherWeights = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path | None, typer.Option(help="A folder to write records.jsonl and table.md to.")] = None,
) -> None:
    """Compare each layer's weights with a Gaussian and say what that prior costs at a noise power."""
    from quietnn.experiments import weight_studies

    found = list(weight_studies.gaussianity(task, wnr_db, weights=weights, data_dir=data_dir))
    rows = [record | {"layer": record["layer"] or "whole model"} for record in found]
    _tell(f"{task} at {wnr_db:g} dB: how Gaussian the weights are", _WEIGHTS, rows, found, out)


def channels(
    task: options.TaskName,
    channel: Annotated[list[str], typer.Option(help="A channel, such as quantise:num_bits=4; give several.")],
    seed: Annotated[int, typer.Option(help="Which noise.")] = 0,
    weights: options.OtherWeights = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path | None, typer.Option(help="A folder for records.jsonl, table.md and figures.")] = None,
) -> None:
    """Send clean weights through channels and compare each error with a Gaussian of the same variance."""
    from quietnn.channels.moments import HISTOGRAM_REACH, PROBABILITIES
    from quietnn.experiments.weight_studies import channel_errors
    from quietnn.files import write_together
    from quietnn.reports.figures import images
    from quietnn.reports.gaussian_figures import density_figure, quantile_figure

    given: dict[str, Any] = {"seed": seed, "weights": weights, "data_dir": data_dir}
    found = [record for text in channel for record in channel_errors(task, text, **given)]
    rows = [{"rate": 1.0} | record for record in found if record["layer"] == ""]
    _tell(f"{task}: what channels do to the weights (seed {seed})", _ERRORS, rows, found, out)
    if out is not None:
        errors = images("errors", density_figure(found, reach=HISTOGRAM_REACH))
        write_together(out, errors | images("quantiles", quantile_figure(found, probabilities=PROBABILITIES)))


@functools.wraps(channels)
def media(*arguments: Any, **given: Any) -> None:
    typer.echo("quietnn media is called quietnn channels now; the old name goes with the next version", err=True)
    channels(*arguments, **given)


def _tell(
    caption: str, columns: Mapping[str, str], rows: Sequence[Record], found: Sequence[Record], out: Path | None
) -> None:
    """Write all records and the table of some to a folder, if there is one, and print the table."""
    from rich.console import Console

    from quietnn.cli.terminal import print_table
    from quietnn.files import write_together
    from quietnn.records import encode
    from quietnn.reports.tables import Table, to_markdown

    cells = tuple(tuple(cell.format_map(record) for cell in columns.values()) for record in rows)
    table = Table(caption, tuple(columns), cells)
    if out is not None:
        lines = "".join(encode(record) + "\n" for record in found)
        write_together(out, {"records.jsonl": lines.encode(), "table.md": (to_markdown(table) + "\n").encode()})
    print_table(table, Console())
