"""`quietnn channels`: what a channel does to a network's weights."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer


def channels(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network> or sst2/<encoder>")],
    channel: Annotated[list[str], typer.Option(help="A channel, such as quantise:num_bits=4; give several.")],
    seed: Annotated[int, typer.Option(help="Which noise.")] = 0,
    weights: Annotated[Path | None, typer.Option(help="Other weights for the same network.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data and weights are, else $QUIETNN_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for records.jsonl, table.md and figures.")] = None,
) -> None:
    """Send clean weights through channels and compare each error with a Gaussian of the same variance."""
    from rich.console import Console

    from quietnn import records
    from quietnn.channels.moments import HISTOGRAM_REACH, PROBABILITIES
    from quietnn.cli.table import print_table
    from quietnn.experiments.channel_errors import ChannelErrors
    from quietnn.files import write_together
    from quietnn.reports.error_figure import density_figure, quantile_figure
    from quietnn.reports.figures import save_figure
    from quietnn.reports.tables import Table, to_markdown

    found = [
        record
        for text in channel
        for record in ChannelErrors(task, text, seed, str(weights) if weights else None).run(data_dir)
    ]
    rows = tuple(
        (
            record["channel"],
            f"{record['effective_wnr_db']:+.1f}",
            f"{record['gain']:.3f}",
            f"{record['correlation']:+.2f}",
            f"{record['squared_over_told']:.3f}",
            f"{record['excess_kurtosis']:+.2f}",
            f"{record['excess_kurtosis_by_told']:+.2f}",
            f"{record['distance']:.3f}",
            f"{record.get('rate', 1.0):.3f}",
        )
        for record in found
        if record["layer"] == ""
    )
    header = (
        "channel",
        "WNR (dB)",
        "gain",
        "correlation with w",
        "error^2 / told",
        "excess kurtosis",
        "the same by told std",
        "KS distance",
        "channel uses",
    )
    table = Table(f"{task}: what channels do to the weights (seed {seed})", header, rows)
    if out is not None:
        lines = "".join(records.encode(record) + "\n" for record in found)
        write_together(out, {"records.jsonl": lines.encode(), "table.md": (to_markdown(table) + "\n").encode()})
        save_figure(density_figure(found, reach=HISTOGRAM_REACH), out / "errors")
        save_figure(quantile_figure(found, probabilities=PROBABILITIES), out / "quantiles")
    print_table(table, Console())


@functools.wraps(channels)
def media(*arguments: Any, **options: Any) -> None:
    typer.echo("quietnn media is called quietnn channels now; the old name goes with the next version", err=True)
    channels(*arguments, **options)
