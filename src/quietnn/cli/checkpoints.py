"""Verbs from file to file, of any size: `quietnn inspect`, `quietnn transmit`, `quietnn denoise`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quietnn.cli import options

if TYPE_CHECKING:
    from quietnn.checkpoints.inspect import GroupInspection, Inspection
    from quietnn.reports.tables import Table


def inspect(
    source: options.Source,
    noise_variance: Annotated[float | None, typer.Option(help="Estimate each layer's WNR at this noise.")] = None,
    groups: Annotated[str, typer.Option(help="layerwise or whole.")] = "layerwise",
    noisy: options.Noisy = None,
    exclude: options.Exclude = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw a histogram of the weights to this .png or .svg.")] = None,
    threads: options.StreamThreads = None,
) -> None:
    """Show count, mean and variance of a checkpoint's weights by layer; with a noise variance, the WNR too."""
    from rich.console import Console

    from quietnn.checkpoints.inspect import inspect_checkpoint
    from quietnn.cli.progress import byte_progress
    from quietnn.cli.terminal import print_table
    from quietnn.errors import InvalidConfig

    if figure is not None and figure.suffix not in (".png", ".svg"):
        raise InvalidConfig(f"--figure is {figure}; its name must end in .png or .svg")
    with byte_progress("inspect", threads=threads) as streaming:
        seen = inspect_checkpoint(
            source,
            noise_variance=noise_variance,
            groups=groups,
            noisy=noisy or [],
            exclude=exclude or [],
            streaming=streaming,
        )
    if figure is not None:
        _draw(seen, figure, noise_variance, threads)
    if as_json:
        fields = {
            "noise_variance": noise_variance,
            "whole": _group_fields(seen.whole),
            "groups": [_group_fields(group) for group in seen.groups],
            "untouched": list(seen.selection.untouched),
            "history": seen.checkpoint.history,
        }
        typer.echo(json.dumps(fields, allow_nan=False))
        return
    print_table(_table(seen, source), Console())
    typer.echo(f"untouched: {', '.join(seen.selection.untouched) or 'nothing'}")
    for step in seen.checkpoint.history:
        typer.echo(f"history: {json.dumps(step)[:300]}")


def transmit(
    source: options.Source,
    out: options.Target,
    seed: Annotated[int, typer.Option(help="Seed of the noise; the same seed gives the same file.")],
    wnr_db: Annotated[float | None, typer.Option(help="Weight-to-noise ratio in dB.")] = None,
    noise_variance: Annotated[float | None, typer.Option(help="Or the variance of the noise.")] = None,
    channel: Annotated[
        str | None,
        typer.Option(help="Or another channel, such as quantise:num_bits=4, pcm:seconds=3600, fading:wnr_db=20."),
    ] = None,
    power: Annotated[
        str | None, typer.Option(help="What --wnr-db is relative to: variance (default) or second-moment.")
    ] = None,
    noisy: options.Noisy = None,
    exclude: options.Exclude = None,
    overwrite: options.Overwrite = False,
    threads: options.StreamThreads = None,
) -> None:
    """Send a checkpoint through white noise or another channel, and record the noise in the output's metadata."""
    from quietnn.channels.awgn import AWGN
    from quietnn.channels.table import channel_named
    from quietnn.checkpoints.transmit import transmit_checkpoint, transmit_checkpoint_through
    from quietnn.cli.progress import byte_progress
    from quietnn.cli.terminal import show_selection
    from quietnn.errors import InvalidConfig

    if [wnr_db, noise_variance, channel].count(None) != 2:
        raise InvalidConfig(
            f"--wnr-db is {wnr_db}, --noise-variance {noise_variance} and --channel {channel}; give exactly one"
        )
    if channel is not None and power is not None:
        raise InvalidConfig(f"--power {power} goes with --wnr-db; a channel has settings of its own")
    asked: dict[str, Any] = {
        "seed": seed,
        "noisy": noisy or [],
        "exclude": exclude or [],
        "overwrite": overwrite,
        "on_selection": show_selection,
    }
    with byte_progress("transmit", threads=threads) as streaming:
        if channel is not None:
            effective_db = transmit_checkpoint_through(
                source, out, channel=channel_named(channel), description=channel, streaming=streaming, **asked
            )
            told = f"through {channel}, effective WNR {effective_db:.2f} dB"
        else:
            white = AWGN(wnr_db=wnr_db, noise_variance=noise_variance, power=power or "variance")
            told = f"noise variance {transmit_checkpoint(source, out, channel=white, streaming=streaming, **asked):.9g}"
    typer.echo(f"wrote {out}: {told}, seed {seed}")


def denoise(
    source: options.Source,
    out: options.Target,
    noise_variance: options.NoiseVariance = None,
    wnr_db: options.ReceivedWnr = None,
    recorded: options.Recorded = False,
    method: Annotated[str | None, typer.Option(help="ml, mmse, mmse_p or mmse_pb (default: mmse).")] = None,
    lambda_prime: Annotated[float | None, typer.Option(help="Population compensator; 0 is MMSE, 1 is ML.")] = None,
    beta: Annotated[float | None, typer.Option(help="Bias compensator.")] = None,
    groups: Annotated[str | None, typer.Option(help="whole or layerwise (default: whole).")] = None,
    temperatures: Annotated[Path | None, typer.Option(help="A file from quietnn tune, instead of a method.")] = None,
    form: Annotated[str, typer.Option(help="centred, uncentred or zero-mean.")] = "centred",
    noisy: options.Noisy = None,
    exclude: options.Exclude = None,
    overwrite: options.Overwrite = False,
    threads: options.StreamThreads = None,
) -> None:
    """Estimate the clean weights of a noisy checkpoint, without any examples.

    Streams files of any size; everything is checked before the first byte is written.
    """
    from quietnn.checkpoints.denoise import denoise_checkpoint
    from quietnn.checkpoints.temperatures import read_temperatures
    from quietnn.cli.progress import byte_progress
    from quietnn.cli.terminal import show_selection

    tuned = read_temperatures(temperatures) if temperatures is not None else None
    with byte_progress("denoise", threads=threads) as streaming:
        done = denoise_checkpoint(
            source,
            out,
            noise_variance=noise_variance,
            wnr_db=wnr_db,
            recorded=recorded,
            method=method,
            lambda_prime=lambda_prime,
            beta=beta,
            temperatures=tuned,
            groups=groups,
            form=form,
            noisy=noisy or [],
            exclude=exclude or [],
            overwrite=overwrite,
            streaming=streaming,
            on_selection=show_selection,
        )
    only = done.denoisers.get("whole")
    how = f"theta {only.theta:.6g}, rho {only.rho:.6g}" if only else f"{len(done.denoisers)} groups"
    typer.echo(f"wrote {out}: noise variance {done.noise_variance:.6g}, {how}")


def _table(seen: "Inspection", source: Path) -> "Table":
    from quietnn.reports.tables import Table

    with_wnr = seen.whole.wnr_db is not None
    rows = []
    for group in (seen.whole, *seen.groups):
        statistics = group.statistics
        name = "whole model" if group is seen.whole else group.name or "(top)"
        counts = (str(len(group.tensors)), f"{statistics.num_weights:,}")
        moments = (f"{statistics.mean:+.4g}", f"{statistics.variance:.4g}")
        rows.append((name, *counts, *moments, *((f"{group.wnr_db:+.2f}",) if with_wnr else ())))
    header = ("layer", "tensors", "weights", "mean", "variance", *(("WNR (dB)",) if with_wnr else ()))
    return Table(f"{source}: {len(seen.selection.noisy)} noisy tensors", header, tuple(rows))


def _group_fields(group: "GroupInspection") -> dict[str, Any]:
    """JSON knows no infinity: a WNR of zero signal or of zero noise is null, like one that is not known."""
    return {
        "name": group.name,
        "tensors": list(group.tensors),
        "num_weights": group.statistics.num_weights,
        "mean": group.statistics.mean,
        "variance": group.statistics.variance,
        "wnr_db": group.wnr_db if group.wnr_db is not None and math.isfinite(group.wnr_db) else None,
    }


def _draw(seen: "Inspection", path: Path, noise_variance: float | None, threads: int | None) -> None:
    from quietnn.checkpoints.inspect import histogram
    from quietnn.checkpoints.workers import Streaming
    from quietnn.files import write_whole
    from quietnn.reports.figures import render
    from quietnn.reports.gaussian_figures import weights_figure

    counts, low, high = histogram(seen, streaming=Streaming(num_threads=threads))
    statistics = seen.whole.statistics
    drawn = weights_figure(counts, (low, high), statistics.mean, statistics.variance, noise_variance)
    write_whole(path, render(drawn, path.suffix.removeprefix(".")))
