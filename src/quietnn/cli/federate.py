"""`quietnn federate`: train over the air, with every scheme of a configuration."""

from pathlib import Path
from typing import Annotated

import typer


def federate(
    config: Annotated[Path, typer.Argument(help="A TOML file, or the name of a ready-made one: federated-digits.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; an existing one is resumed.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset of the file.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Replace a key: --set num_draws=1")] = None,
    engine: Annotated[str, typer.Option(help="inline, or processes for several runs at a time.")] = "inline",
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    threads: Annotated[int, typer.Option(help="Threads in each.")] = 1,
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are, else $QUIETNN_DATA.")] = None,
) -> None:
    """Let devices train one network together and send their updates over a noisy channel.

    Every round is checkpointed: kill it at any time, run the same command again, and it ends the same.
    """
    from quietnn.cli.federation_progress import federation_progress
    from quietnn.experiments.config import load_config
    from quietnn.experiments.noisy_training import NoisyTraining
    from quietnn.experiments.sweep import sweep
    from quietnn.reports.federated_report import write_federated_report

    experiment = load_config(NoisyTraining, config, preset=preset, overrides=set_ or [])
    folder = out or Path("runs") / experiment.name
    with federation_progress(experiment.name, len(experiment.units()), experiment.num_rounds) as progress:
        records = sweep(
            experiment,
            folder,
            engine=engine,
            num_workers=workers,
            num_threads=threads,
            data_dir=data_dir,
            on_record=progress.on_record,
            on_round=progress.on_round,
            on_damage=lambda damage: typer.echo(f"set aside: {damage}; its record is made again", err=True),
        )
    report = write_federated_report(folder)
    typer.echo("\n".join(report.sentences))
    typer.echo(f"{len(records)} records in {folder}; read {folder / 'summary.md'}")
