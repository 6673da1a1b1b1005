"""`quietnn auto`: the former name of `quietnn repair`."""

from pathlib import Path
from typing import Annotated

import typer

from quietnn.cli.repair import repair


def auto(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network> or package.module:function")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    weights: Annotated[Path, typer.Option(help="The noisy weights.")],
    noise_variance: Annotated[float | None, typer.Option(help="sigma_z^2, of the noise on every weight.")] = None,
    num_examples: Annotated[int, typer.Option(help="Examples to use; 0 for none at all.")] = 100,
    labels: Annotated[bool, typer.Option(help="Use the labels of the examples, or their inputs only.")] = True,
    balanced_classes: Annotated[bool, typer.Option(help="Without labels: classes are about equally common.")] = False,
    max_passes: Annotated[float, typer.Option(help="What it may cost, in passes over the examples.")] = 450,
    seed: Annotated[int, typer.Option(help="Which examples, and how they are halved.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Former name of: quietnn repair WEIGHTS OUT --task TASK."""
    typer.echo(f"quietnn auto is now: quietnn repair {weights} {out} --task {task}", err=True)
    repair(
        weights,
        out,
        task=task,
        noise_variance=noise_variance,
        num_examples=num_examples,
        labels=labels,
        balanced_classes=balanced_classes,
        max_passes=max_passes,
        seed=seed,
        data_dir=data_dir,
        overwrite=overwrite,
    )
