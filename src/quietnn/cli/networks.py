"""Verbs about a task's clean weights: `quietnn train`, `evaluate`, and two that compare with a Gaussian.

These are `quietnn gaussianity` for the weights and `quietnn channels` for what a channel does to them.
"""

import functools
import json
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


def train(
    task: options.TaskName,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data (default: the recipe's)")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step (default: the recipe's)")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate (default: the recipe's)")] = None,
    seed: Annotated[int, typer.Option(help="Fixes initial weights, order and augmentation")] = 0,
    progressive: Annotated[
        bool, typer.Option(help="CIFAR-10: begin with images of 16x16, then 24x24; end with 32x32")
    ] = True,
    weight_noise_db: Annotated[
        float | None, typer.Option(help="Images: train with noise at this WNR on the weights, to bear it later")
    ] = None,
    weight_noise_share: Annotated[
        float | None, typer.Option(help="Images: the same, as a share of the largest weight of each tensor: 0.04")
    ] = None,
    weight_clip: Annotated[
        float | None, typer.Option(help="Images: hold weights within so many standard deviations of their tensor")
    ] = None,
    grow_from: Annotated[
        str | None, typer.Option(help="CIFAR-10: begin with the weights of this shallower network, such as resnet18")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the checkpoints (default: in the data folder)")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line every 25 steps to this file")] = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Weights to write (default: where evaluate finds them)")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace weights that are there already")] = False,
    resume: Annotated[bool, typer.Option(help="Continue after a kill, or start over")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (default: all)")] = None,
) -> None:
    """Train a network, or fine-tune an encoder; kill it at any time and run it again to resume."""
    from dataclasses import replace

    import torch

    from quietnn.cli.progress import training_progress
    from quietnn.errors import InvalidConfig
    from quietnn.tasks.data_dir import resolve_data_dir
    from quietnn.tasks.training import ImageRecipe
    from quietnn.tasks.training_named import default_recipe, train_task

    recipe = default_recipe(task, grow_from=grow_from)
    on_weights: dict[str, Any] = {
        "weight_noise_db": weight_noise_db,
        "weight_noise_share": weight_noise_share,
        "weight_clip": weight_clip,
    }
    asked: dict[str, Any] = {"num_epochs": epochs, "batch_size": batch_size, "peak_lr": lr, "seed": seed}
    recipe = replace(recipe, **{name: value for name, value in asked.items() if value is not None})
    if isinstance(recipe, ImageRecipe):
        small_images = recipe.small_images if progressive else ()
        recipe = replace(recipe, small_images=small_images, **on_weights)
    else:
        for name, value in on_weights.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise InvalidConfig(f"{option} is for image networks, not for {task}; leave it out")
    if threads is not None:
        torch.set_num_threads(threads)
    with training_progress(task, log=log) as on_progress:
        path = train_task(
            task,
            data_dir=resolve_data_dir(data_dir),
            recipe=recipe,
            out=out,
            grow_from=grow_from,
            run_dir=run_dir,
            resume=resume,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    option = f" --weights {path}" if out is not None or task == "digits" else ""
    typer.echo(f"wrote {path}; test it with: quietnn evaluate {task}{option}")


def evaluate(
    task: options.TaskName,
    weights: options.OtherWeights = None,
    num_examples: Annotated[int | None, typer.Option(help="A fixed subset of the test data (default: all)")] = None,
    data_dir: options.DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
) -> None:
    """Test the network of a task: accuracy with its standard error, and loss."""
    from quietnn.tasks.registry import load_task
    from quietnn.weights import check_module

    loaded = load_task(task, data_dir=data_dir, weights=weights)
    model = loaded.load_model()
    check_module(model)
    score = loaded.score_of(model, loaded.test_examples(num_examples))
    if as_json:
        fields = {
            "task": loaded.name,
            "accuracy": score.accuracy,
            "standard_error": None if score.accuracy is None else score.standard_error,
            **({} if score.value is None else {"score": score.value}),
            "loss": score.loss,
            "num_examples": score.num_examples,
        }
        typer.echo(json.dumps(fields))
    else:
        reached = f"score {score}"
        if score.accuracy is not None:
            reached = f"accuracy {100 * score.accuracy:.2f} % +- {100 * score.standard_error:.2f} (standard error)"
        typer.echo(f"{loaded.name}: {reached} on {score.num_examples} examples, loss {score.loss:.4f}")


def gaussianity(
    task: options.TaskName,
    wnr_db: Annotated[float, typer.Option(help="WNR of the whole model, in dB; sets the noise.")] = 0.0,
    weights: options.OtherWeights = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path | None, typer.Option(help="A folder to write records.jsonl and table.md to.")] = None,
) -> None:
    """Compare each layer's weights with a Gaussian and show what assuming one costs at a noise power."""
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
