"""Run an experiment of noisy training into a folder: stage by stage, only what is missing."""

from functools import partial
from pathlib import Path

from quietnn.experiments.federated_run import OnRound, Worker, ignore_round
from quietnn.experiments.noisy_training import EXTENDABLE, NoisyTraining
from quietnn.experiments.sweep import OnDamage, OnRecord, ignore_damage, ignore_record, run_missing
from quietnn.records import Record


def federate(
    config: NoisyTraining,
    folder: Path,
    *,
    engine: str = "inline",
    num_workers: int = 1,
    num_threads: int = 1,
    data_dir: Path | None = None,
    on_record: OnRecord = ignore_record,
    on_round: OnRound = ignore_round,
    on_damage: OnDamage = ignore_damage,
) -> list[Record]:
    """Make every record that the folder lacks, and return all of them.

    Safe to kill at any instant: every round of every run is checkpointed, and a rerun goes on where it was.

    Args:
        config: the experiment.
        folder: where `records.jsonl`, `config.json` and the checkpoints are kept.
        engine: `"inline"`, or `"processes"` for several runs at a time.
        num_workers: worker processes.
        num_threads: torch threads in each.
        data_dir: where data sets lie.
        on_record: told about each finished run, how many there are, and how many there will be in its stage.
        on_round: told about each round; inline only, since workers keep their rounds to themselves.
        on_damage: told about each damaged record, which is made again.
    """
    found: list[Record] = []
    told = on_round if engine == "inline" else ignore_round
    for stage in config.stages():
        found = run_missing(
            config,
            folder,
            stage,
            partial(Worker, config, folder, data_dir, told),
            extendable=EXTENDABLE,
            engine=engine,
            num_workers=num_workers,
            num_threads=num_threads,
            on_record=on_record,
            on_damage=on_damage,
        )
    return found
