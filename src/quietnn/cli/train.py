"""`quietnn train`: make clean weights where none exist."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    task: Annotated[str, typer.Argument(help="digits, cifar10/<network> or sst2/<encoder>")],
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data [default: the recipe's]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step [default: the recipe's]")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate [default: the recipe's]")] = None,
    seed: Annotated[int, typer.Option(help="Fixes initial weights, order and augmentation")] = 0,
    progressive: Annotated[
        bool, typer.Option(help="CIFAR-10: 16x16 images first, then 24x24, then 32x32; about half the time")
    ] = True,
    ema: Annotated[float | None, typer.Option(help="CIFAR-10: keep the moving average with this decay")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder [default: $QUIETNN_DATA, ~/.cache/quietnn]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Weights to write [default: where evaluate finds them]")] = None,
    resume: Annotated[bool, typer.Option(help="Continue after a kill, or start over")] = True,
    threads: Annotated[int | None, typer.Option(help="CPU threads [default: all]")] = None,
) -> None:
    """Train a network, or fine-tune an encoder; kill it at any time and call again to resume."""
    import torch

    from quietnn.cli.training_progress import training_progress
    from quietnn.tasks.data_dir import resolve_data_dir
    from quietnn.tasks.registry import split_name

    family, member = split_name(task)
    if threads is not None:
        torch.set_num_threads(threads)
    folder = resolve_data_dir(data_dir)
    asked = {"num_epochs": epochs, "batch_size": batch_size, "peak_lr": lr}
    settings = {name: value for name, value in asked.items() if value is not None}
    with training_progress(task) as on_progress:
        if family == "cifar10":
            from quietnn.tasks.training import ImageRecipe
            from quietnn.tasks.training_named import train_cifar10

            small_images = ((16, 0.38), (24, 0.67)) if progressive else ()
            recipe = ImageRecipe(**settings, seed=seed, small_images=small_images, ema_decay=ema)  # type: ignore[arg-type]
            path = train_cifar10(
                member, data_dir=folder, recipe=recipe, out=out, resume=resume, on_progress=on_progress
            )
        else:
            from quietnn.tasks.finetuning import EncoderRecipe
            from quietnn.tasks.training_named import train_sst2

            path = train_sst2(
                member,
                data_dir=folder,
                recipe=EncoderRecipe(**settings, seed=seed),  # type: ignore[arg-type]
                out=out,
                resume=resume,
                on_progress=on_progress,
            )
    typer.echo(f"wrote {path}\ntest it with: quietnn evaluate {task}")
