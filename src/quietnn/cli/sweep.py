"""`quietnn sweep`: accuracy against WNR for every method of a configuration."""

from pathlib import Path
from typing import Annotated

import typer


def sweep(
    config: Annotated[Path, typer.Argument(help="A TOML file, or the name of a ready-made one: resnet20.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; an existing one is resumed.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset of the file, for example laptop or paper.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Replace a key: --set num_draws=3")] = None,
    engine: Annotated[str, typer.Option(help="inline, processes or ray.")] = "processes",
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 2,
    threads: Annotated[int, typer.Option(help="Threads in each worker.")] = 1,
    address: Annotated[str | None, typer.Option(help="Address of an existing Ray cluster.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data and weights are, else $QUIETNN_DATA.")] = None,
) -> None:
    """Add noise, denoise with every method, test: one record for each WNR, draw and method.

    Safe to kill: run the same command again and it does only what is missing.
    """
    from quietnn.cli.progress import record_progress
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_inference import NoisyInference
    from quietnn.experiments.sweep import sweep as run
    from quietnn.records import other_versions

    experiment = load_config(NoisyInference, config, preset=preset, overrides=set_ or [])
    folder = out or Path("runs") / experiment.name
    with record_progress(experiment.name) as on_record:
        records = run(
            experiment,
            folder,
            engine=engine,
            num_workers=workers,
            num_threads=threads,
            address=address,
            data_dir=data_dir,
            on_record=on_record,
            on_damage=lambda damage: typer.echo(f"set aside: {damage}; its record is made again", err=True),
        )
    if sentence := other_versions(records):
        typer.echo(sentence)
    verb = "analyze" if any(record["accuracy"] is not None for record in records) else "report"
    typer.echo(f"{len(records)} records in {folder}; next: quietnn {verb} {folder}")
