"""A run folder: the records of a sweep beside the configuration that made them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quietnn.errors import InvalidConfig, MissingData
from quietnn.records import Record, read
from quietnn.reports.curves import check_record

RECORDS = "records.jsonl"
CONFIG = "config.json"
EXPERIMENT = "noisy_inference"


@dataclass(frozen=True)
class Run:
    """What a sweep left on the disk."""

    name: str
    folder: Path
    config: dict[str, Any]
    records: tuple[Record, ...]


def load_run(folder: Path) -> Run:
    """Read the noisy inference of a run folder, or of the folder of a records file.

    Raises:
        MissingData: if there are no records, with the path that was looked for.
        InvalidConfig: if a line is broken, or the records are not those of noisy inference.
    """
    run = read_run(folder)
    path = run.folder / RECORDS
    kept = inference_records(run.records)
    if not kept:
        others = sorted({str(record.get("experiment")) for record in run.records})
        what = f"only records of {', '.join(others)}" if others else "no whole record"
        raise MissingData(f"{path} holds {what}; this analysis reads records of {EXPERIMENT}")
    try:
        for number, record in enumerate(kept, start=1):
            check_record(record, number)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
    return replace(run, records=kept)


def read_run(folder: Path) -> Run:
    """Read a run folder, or the folder of a records file, whatever experiment left it.

    Raises:
        MissingData: if there is no file of records, with the path that was looked for.
        InvalidConfig: if a line or the configuration is broken.
    """
    folder = folder.parent if folder.name == RECORDS else folder
    path = folder / RECORDS
    if not path.is_file():
        raise MissingData(f"no records in {folder}: looked for {path}; give the folder that a sweep wrote")
    try:
        found = read(path)
        config = _read_config(folder / CONFIG)
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{folder} holds a file that is not text ({error}); is it a run folder?") from error
    except OSError as error:
        raise MissingData(f"{path} cannot be read ({error.strerror})") from error
    first = inference_records(found)[:1] or tuple(found[:1])
    name = str(config.get("name") or (first and first[0].get("run")) or folder.resolve().name)
    return Run(name, folder, config, tuple(found))


def inference_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Those of noisy inference; a record that names no experiment is one of them."""
    return tuple(record for record in records if record.get("experiment", EXPERIMENT) == EXPERIMENT)


def with_distinct_names(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs, each under a name of its own, which its records carry too.

    Raises:
        InvalidConfig: if one folder is given twice.
    """
    folders = [run.folder.resolve() for run in runs]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InvalidConfig(f"{folder} is given {folders.count(folder)} times; once is enough")
    names = [run.name for run in runs]
    distinct = [run.name if names.count(run.name) == 1 else f"{run.name} in {run.folder}" for run in runs]
    return tuple(
        replace(run, name=name, records=tuple({**record, "run": name} for record in run.records))
        for run, name in zip(runs, distinct, strict=True)
    )


def _read_config(path: Path) -> dict[str, Any]:
    """The configuration; empty if there is none, since records alone are enough to draw."""
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidConfig(f"{path} is not JSON ({error}); restore it or remove it") from error
    if not isinstance(config, dict):
        raise InvalidConfig(f"{path} holds a {type(config).__name__}; a configuration is a JSON object")
    return config
