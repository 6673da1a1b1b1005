"""Run an experiment into a folder: only what is missing, each record on disk before the next."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietnn import records
from quietnn.errors import InvalidConfig
from quietnn.experiments.config import to_mapping
from quietnn.experiments.engines import OnRound, Unit, ignore, key_of, run_units
from quietnn.files import write_whole
from quietnn.records import CONFIG, RECORDS, Record

if TYPE_CHECKING:
    from quietnn.experiments.noisy_inference import NoisyInference
    from quietnn.experiments.noisy_training import NoisyTraining

    Experiment = NoisyInference | NoisyTraining

OnRecord = Callable[[Record, int, int], None]
"""Told about each new record, how many there are, and how many there will be in its stage."""

OnDamage = Callable[[records.Damage], None]
"""Told about each line of an older sitting that is damaged; its record is made again."""


def sweep(
    config: "Experiment",
    folder: Path,
    *,
    engine: str = "processes",
    num_workers: int = 2,
    num_threads: int = 1,
    address: str | None = None,
    data_dir: Path | None = None,
    on_record: OnRecord = ignore,
    on_round: OnRound = ignore,
    on_damage: OnDamage = ignore,
) -> list[Record]:
    """Make every record of an experiment that the folder lacks, and return all of them.

    Safe to kill at any instant: a record is on the disk before the next is asked for, and a rerun does only what
    is missing. A damaged line is set aside in `records.damaged.jsonl`, and its record is made again. WNRs, draws and
    methods may be added to a run; anything else needs a folder of its own. The engine and its settings are those of
    `run_units`. Rounds of a federation are told of inline only, since workers keep theirs to themselves.
    """
    make_worker = partial(config.worker, data_dir, folder, on_round if engine == "inline" else ignore)
    run = partial(run_units, engine, make_worker, num_workers=num_workers, num_threads=num_threads, address=address)
    have: list[Record] = []
    for stage in config.stages():
        have = _run_missing(config, folder, stage, run, on_record, on_damage)
    return have


def _run_missing(
    config: "Experiment",
    folder: Path,
    units: Sequence[Unit],
    run: Callable[[Sequence[Unit]], Iterator[Record]],
    on_record: OnRecord,
    on_damage: OnDamage,
) -> list[Record]:
    """Make the records of these units that the folder lacks, and return all that are in it."""
    path = folder / RECORDS
    wanted = {key for unit in units for key in unit.keys()}  # noqa: SIM118
    have, damaged = _of_this_experiment(config, folder)
    is_told = not have or _stored_config(folder)
    if is_told and not damaged and wanted <= {key_of(record) for record in have}:
        return have
    with records.sole_writer(folder):
        for damage in records.set_damage_aside(path):
            on_damage(damage)
        have, _ = _of_this_experiment(config, folder)
        done = {key_of(record) for record in have}
        missing = [rest for unit in units if (rest := unit.without(done)).methods]
        num_before = len(have)
        if not is_told:
            _write_config(config, folder)
        for record in run(missing):
            if key_of(record) not in done:
                if len(have) == num_before:
                    _write_config(config, folder)
                records.append(path, [record])
                done.add(key_of(record))
                have.append(record)
                on_record(record, len(done & wanted), len(wanted))
    return have


def _of_this_experiment(config: "Experiment", folder: Path) -> tuple[list[Record], list[records.Damage]]:
    """The sound records of a folder, which must be those of this configuration or of one that it extends."""
    have, damaged = records.read_sound(folder / RECORDS)
    other = next((record for record in have if record.get("config") != config.digest), None)
    if other is None:
        return have, damaged
    theirs = _stored_config(folder)
    ours = to_mapping(config)
    differ = [key for key in ours if key not in config.EXTENDABLE and key in theirs and theirs[key] != ours[key]]
    raise InvalidConfig(
        f"{folder} holds records of another configuration"
        + (f" ({', '.join(f'{key} was {theirs[key]!r}, is {ours[key]!r}' for key in differ[:3])})" if differ else "")
        + "; choose another --out, or remove the folder to start over"
    )


def _stored_config(folder: Path) -> dict[str, Any]:
    """The configuration of an older sitting; empty if it is lost or damaged, for it only words a refusal."""
    try:
        stored = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _write_config(config: "Experiment", folder: Path) -> None:
    text = json.dumps({**to_mapping(config), "digest": config.digest}, indent=2)
    write_whole(folder / CONFIG, (text + "\n").encode())
