"""`quietnn inspect`: what is in a checkpoint, layer by layer."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from quietnn.checkpoints.inspect import GroupInspection, Inspection
    from quietnn.reports.tables import Table


def inspect(
    source: Annotated[Path, typer.Argument(help="A .safetensors or .pt file, or a model folder.")],
    noise_variance: Annotated[float | None, typer.Option(help="Estimate each layer's WNR at this noise.")] = None,
    groups: Annotated[str, typer.Option(help="layerwise or whole.")] = "layerwise",
    noisy: Annotated[list[str] | None, typer.Option(help="Pattern of noisy tensors, instead of the rule.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of tensors to leave alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw a histogram of the weights to this .png or .svg.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads (default: by the number of cores).")] = None,
) -> None:
    """Groups, counts, mean and variance of a checkpoint's weights; with a noise variance, the WNR too."""
    from rich.console import Console

    from quietnn.checkpoints.inspect import inspect_checkpoint
    from quietnn.cli.byte_progress import byte_progress
    from quietnn.cli.table import print_table
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
        typer.echo(json.dumps(_fields(seen, noise_variance), allow_nan=False))
        return
    print_table(_table(seen, source), Console())
    typer.echo(f"untouched: {', '.join(seen.selection.untouched) or 'nothing'}")
    for step in seen.history:
        typer.echo(f"history: {json.dumps(step)[:300]}")


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


def _fields(seen: "Inspection", noise_variance: float | None) -> dict[str, Any]:
    return {
        "noise_variance": noise_variance,
        "whole": _group_fields(seen.whole),
        "groups": [_group_fields(group) for group in seen.groups],
        "untouched": list(seen.selection.untouched),
        "history": seen.history,
    }


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
    from quietnn.reports.figures import to_png, to_svg
    from quietnn.reports.weights_figure import weights_figure

    counts, low, high = histogram(seen, streaming=Streaming(num_threads=threads))
    statistics = seen.whole.statistics
    drawn = weights_figure(
        counts,
        low=low,
        high=high,
        mean=statistics.mean,
        variance=statistics.variance,
        noise_variance=noise_variance,
    )
    write_whole(path, to_png(drawn) if path.suffix == ".png" else to_svg(drawn).encode())
