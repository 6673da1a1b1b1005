"""`quietnn auto`: repair noisy weights of a task with whatever there is."""

from pathlib import Path
from typing import Annotated

import typer


def auto(
    task: Annotated[str, typer.Argument(help="digits or cifar10/<network>")],
    out: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    weights: Annotated[Path, typer.Option(help="The noisy weights, a safetensors file.")],
    noise_variance: Annotated[
        float | None, typer.Option(help="sigma_z^2, of the noise on every weight (default: estimated from BatchNorm).")
    ] = None,
    num_examples: Annotated[int, typer.Option(help="Examples to use; 0 for none at all. Never test data.")] = 100,
    labels: Annotated[bool, typer.Option(help="Use the labels of the examples, or their inputs only.")] = True,
    balanced_classes: Annotated[
        bool, typer.Option(help="Without labels: say that all classes are about equally common, to train by that.")
    ] = False,
    max_passes: Annotated[float, typer.Option(help="Leave out what would cost more passes over the examples.")] = 450,
    seed: Annotated[int, typer.Option(help="Which examples, and how they are halved.")] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder (default: $QUIETNN_DATA, ~/.cache/quietnn)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Try every method that the examples allow, say what each is worth, and write the network that won."""
    from rich.console import Console

    from quietnn.checkpoints.temperatures import check_writable
    from quietnn.errors import InvalidConfig
    from quietnn.repairs.auto import auto as repair
    from quietnn.tasks.registry import load_task, split_name
    from quietnn.tasks.weights_file import write_weights

    if split_name(task)[0] == "sst2":
        raise InvalidConfig(f"{task} is a folder of files, and this writes one; use quietnn.auto from Python")
    if balanced_classes and labels and num_examples:
        raise InvalidConfig("--balanced-classes stands in for labels, which are used unless you add --no-labels")
    check_writable(out, source=weights, overwrite=overwrite)
    loaded = load_task(task, data_dir=data_dir, weights=weights)
    model = loaded.load_model()
    examples = loaded.tuning_examples(num_examples, seed) if num_examples else None
    with Console(stderr=True).status("trying what there is"):
        result = repair(
            model,
            noise_variance=noise_variance,
            inputs=examples.inputs if examples else None,
            labels=examples.labels if examples and labels else None,
            augment=loaded.augment,
            balanced_classes=balanced_classes,
            max_passes=max_passes,
            seed=seed,
        )
    write_weights(out, result.model.state_dict(), metadata={"method": result.chosen})
    typer.echo(str(result))
    typer.echo(f"wrote {out}: {result.chosen}")
