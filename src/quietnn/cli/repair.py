"""`quietnn repair`: a noisy file or model folder in, a repaired one of the same kind out."""

from pathlib import Path
from typing import Annotated

import typer

STREAMED = {"ml": ("ml", "whole"), "mmse": ("mmse", "whole"), "mmse_layerwise": ("mmse", "layerwise")}
"""Repairs that need no network, and what `quietnn denoise` calls them: method and groups."""


def repair(
    what: Annotated[Path, typer.Argument(help="The noisy weights: a .safetensors or .pt file, or a model folder.")],
    out: Annotated[Path, typer.Argument(help="Where to write; of the same kind.")],
    task: Annotated[
        str | None,
        typer.Option(
            help="What the network is for: digits, cifar10/<network>, sst2/<encoder>, or package.module:function."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="auto, or a repair by name; a wrong name lists them.")] = "auto",
    noise_variance: Annotated[float | None, typer.Option(help="sigma_z^2, of the noise on every weight.")] = None,
    wnr_db: Annotated[float | None, typer.Option(help="Or the WNR in dB: sigma_z^2 = var(r) / (1 + WNR).")] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Or what quietnn transmit recorded in the file.")
    ] = False,
    num_examples: Annotated[int, typer.Option(help="Examples of the task to use; 0 for none. Never test data.")] = 100,
    labels: Annotated[bool, typer.Option(help="Use the labels of the examples, or their inputs only.")] = True,
    balanced_classes: Annotated[
        bool, typer.Option(help="Without labels: say that all classes are about equally common.")
    ] = False,
    max_passes: Annotated[float, typer.Option(help="What auto may cost, in passes over the examples.")] = 450,
    seed: Annotated[int, typer.Option(help="Which examples, and how they are halved.")] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder (default: $QUIETNN_DATA, ~/.cache/quietnn)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")] = False,
) -> None:
    """Repair noisy weights with what the task offers: nothing, inputs, or inputs with labels."""
    from rich.console import Console

    from quietnn.checkpoints.opening import check_target, open_checkpoint
    from quietnn.checkpoints.repair import observe_checkpoint, write_repaired
    from quietnn.cli.byte_progress import byte_progress
    from quietnn.errors import InvalidConfig
    from quietnn.evidence import Evidence
    from quietnn.repairs.base import REPAIRS
    from quietnn.repairs.front import repair as repair_model
    from quietnn.tasks.own import is_own, own_function
    from quietnn.tasks.registry import load_task

    if task is not None and is_own(task):
        own_function(task)  # its module may register a repair of its own
    row = REPAIRS[method]
    if task is None:
        if method not in STREAMED:
            raise InvalidConfig(
                f"{method} runs the network, and nothing says how; add --task digits, cifar10/resnet18 or "
                f"package.module:function for a network of your own. Without a task: --method {' or '.join(STREAMED)}"
            )
        _stream(what, out, method, noise_variance, wnr_db, recorded, overwrite)
        return
    if balanced_classes and labels and num_examples:
        raise InvalidConfig("--balanced-classes stands in for labels, which are used unless you add --no-labels")
    check_target(what, out, overwrite=overwrite, files=open_checkpoint(what).files)
    loaded = load_task(task, data_dir=data_dir, weights=what)
    observation = observe_checkpoint(
        what, loaded.load_model(), noise_variance=noise_variance, wnr_db=wnr_db, recorded=recorded
    )
    evidence = loaded.evidence(loaded.tuning_examples(num_examples, seed)) if num_examples else Evidence()
    with Console(stderr=True).status(f"{row.label.lower()}: repairing"):
        repaired = repair_model(
            observation,
            evidence if labels else evidence.without_labels(),
            method=method,
            balanced_classes=balanced_classes,
            max_passes=max_passes,
            seed=seed,
        )
    with byte_progress("write", threads=None) as streaming:
        changed = write_repaired(what, out, repaired, overwrite=overwrite, streaming=streaming)
    typer.echo(str(repaired))
    typer.echo(f"wrote {out}: {repaired.name}, {len(changed)} tensors changed")


def _stream(
    what: Path,
    out: Path,
    method: str,
    noise_variance: float | None,
    wnr_db: float | None,
    recorded: bool,
    overwrite: bool,
) -> None:
    """File to file, any size."""
    from quietnn.checkpoints.denoise import denoise_checkpoint
    from quietnn.cli.byte_progress import byte_progress
    from quietnn.cli.selection import show_selection

    name, groups = STREAMED[method]
    with byte_progress("repair", threads=None) as streaming:
        done = denoise_checkpoint(
            what,
            out,
            noise_variance=noise_variance,
            wnr_db=wnr_db,
            recorded=recorded,
            method=name,
            groups=groups,
            overwrite=overwrite,
            streaming=streaming,
            on_selection=show_selection,
        )
    typer.echo(f"wrote {out}: {method}, noise variance {done.noise_variance:.6g}")
