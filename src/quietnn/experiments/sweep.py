"""Run an experiment into a folder: only what is missing, each record on disk before the next."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quietnn import records
from quietnn.errors import InvalidConfig
from quietnn.experiments.config import to_mapping
from quietnn.experiments.engines import run_units
from quietnn.experiments.noisy_inference import EXTENDABLE, NoisyInference, key_of
from quietnn.records import Record

RECORDS = "records.jsonl"
CONFIG = "config.json"


def sweep(
    config: NoisyInference,
    folder: Path,
    *,
    engine: str = "processes",
    num_workers: int = 2,
    num_threads: int = 1,
    address: str | None = None,
    data_dir: Path | None = None,
    on_record: Callable[[Record, int, int], None] = lambda record, done, total: None,
) -> list[Record]:
    """Make every record of an experiment that the folder lacks, and return all of them.

    Safe to kill at any instant: a record is on the disk before the next is asked for, and a rerun does only what
    is missing. WNRs, draws and methods may be added to a run; anything else needs a folder of its own.

    Args:
        config: the experiment.
        folder: where `records.jsonl` and `config.json` are kept.
        engine: where units run, see `run_units`.
        num_workers: worker processes or Ray actors.
        num_threads: torch threads in each.
        address: of an existing Ray cluster.
        data_dir: where data sets and weights are.
        on_record: told about each new record, how many there are, and how many there will be.
    """
    path = folder / RECORDS
    have = records.read(path)
    _check_same_experiment(config, folder, have)
    units = config.units()
    wanted = {key for unit in units for key in unit.keys()}  # noqa: SIM118
    done = {key_of(record) for record in have}
    missing = [rest for unit in units if (rest := unit.without(done)).methods]
    if not missing:
        return have
    num_before = len(have)
    make_worker = partial(config.worker, data_dir)
    for record in run_units(
        engine, make_worker, missing, num_workers=num_workers, num_threads=num_threads, address=address
    ):
        if key_of(record) not in done:
            if len(have) == num_before:
                _write_config(config, folder)
            records.append(path, [record])
            done.add(key_of(record))
            have.append(record)
            on_record(record, len(done & wanted), len(wanted))
    return have


def _check_same_experiment(config: NoisyInference, folder: Path, have: list[Record]) -> None:
    other = next((record for record in have if record.get("config") != config.digest), None)
    if other is None:
        return
    theirs = json.loads((folder / CONFIG).read_text()) if (folder / CONFIG).exists() else {}
    ours = to_mapping(config)
    differ = [key for key in ours if key not in EXTENDABLE and key in theirs and theirs[key] != ours[key]]
    raise InvalidConfig(
        f"{folder} holds records of another configuration"
        + (f" ({', '.join(f'{key} was {theirs[key]!r}, is {ours[key]!r}' for key in differ[:3])})" if differ else "")
        + "; choose another --out, or remove the folder to start over"
    )


def _write_config(config: NoisyInference, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / (CONFIG + ".new")
    with beside.open("w") as file:
        json.dump({**to_mapping(config), "digest": config.digest}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / CONFIG)
