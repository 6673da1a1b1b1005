"""A run folder: the records of a sweep beside the configuration that made them, and what of its plan is missing."""

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from quietnn.errors import InvalidConfig, MissingData
from quietnn.methods import CLEAN, style_of
from quietnn.records import COMPRESSED, CONFIG, MOST_RECORDS, RECORDS, Damage, Record, is_there, read, read_sound
from quietnn.records.schema import INFERENCE, SELECTION_DRAW, TRAINING, config_problem, experiment_of
from quietnn.reports.titles import counted

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Run:
    """What a sweep left on the disk."""

    name: str
    folder: Path
    config: dict[str, Any]
    records: tuple[Record, ...]
    damaged: tuple[Damage, ...] = ()


def load_run(folder: Path) -> Run:
    """Read the noisy inference of a run folder, or of the folder of a records file; there must be some."""
    run = read_run(folder)
    path = run.folder / RECORDS
    kept = inference_records(run.records)
    if not kept:
        others = sorted({str(record.get("experiment")) for record in run.records})
        what = f"only records of {', '.join(others)}" if others else "no whole record"
        raise MissingData(f"{path} holds {what}; this analysis reads records of {INFERENCE}")
    return replace(run, records=kept)


def read_run(folder: Path, *, only_sound: bool = False) -> Run:
    """Read a run folder, or the folder of a records file, whatever experiment left it.

    A damaged line makes all of it refused; with `only_sound` it is left out and listed in the run.

    Raises:
        MissingData: if there is no file of records, with the path that was looked for.
        InvalidConfig: if a line or the configuration is broken, with its number and field.
    """
    folder = folder.parent if folder.name in (RECORDS, RECORDS + COMPRESSED) else folder
    path = folder / RECORDS
    if not is_there(path):
        raise MissingData(f"no records in {folder}: looked for {path}; give the folder that a sweep wrote")
    found, damaged = read_sound(path) if only_sound else (read(path), [])
    config = _read_config(folder / CONFIG)
    first = inference_records(found)[:1] or tuple(found[:1])
    name = str(config.get("name") or (first and first[0].get("run")) or folder.resolve().name)
    return Run(name, folder, config, tuple(found), tuple(damaged))


def inference_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Those of noisy inference; a record that names no experiment is one of them."""
    return tuple(record for record in records if experiment_of(record) == INFERENCE)


def grouped(records: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    """The records by what a function says of each, in the order in which it says so first."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def with_distinct_names(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs, each under a name of its own, which its records carry too; no folder may be given twice."""
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


def planned_cells(run: Run) -> set[tuple[Any, ...]] | None:
    """The `(wnr_db, draw, method)` that a configuration asks for; None if it does not say.

    A channel that is set by something else has its level (bits, seconds) in the place of the WNR.
    A federation, which is known by its rounds, is trained without noise in every draw, and chooses fixed temperatures
    among candidates in a draw of its own.
    """
    config = run.config
    wnrs, methods = config.get("wnr_db") or config.get("levels"), config.get("methods")
    num_draws = config.get("num_draws")
    if wnrs is None or methods is None or num_draws is None:
        return None
    if (len(wnrs) * len(methods) + 1) * num_draws > MOST_RECORDS:  # one more, without noise, in every draw
        return None
    cells = {(_wnr(wnr), draw, str(method)) for wnr in wnrs for draw in range(num_draws) for method in methods}
    if "num_rounds" not in config:
        return cells | {(math.inf, 0, CLEAN)}
    chosen = any("fixed" in str(method) for method in methods)
    candidates = config.get("fixed", ()) if chosen else ()
    cells |= {(_wnr(wnr), SELECTION_DRAW, str(text)) for wnr in wnrs for text in candidates}
    return cells | {(math.inf, draw, CLEAN) for draw in range(num_draws)}


def measured_cells(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """The cells that the records hold."""
    return {
        (_wnr(record.get("level", record.get("wnr_db"))), record.get("draw"), record.get("method"))
        for record in records
        if experiment_of(record).startswith((INFERENCE, TRAINING))
    }


def missing_sentence(run: Run) -> str:
    """What was planned and is not there, in words; empty if all of it is, or if nothing says what was planned."""
    planned = planned_cells(run) or set()
    missing = planned - measured_cells(run.records)
    if not missing:
        return ""
    by_name = Counter(
        "candidates for fixed temperatures" if draw == SELECTION_DRAW else style_of(str(method)).label
        for _, draw, method in missing
    )
    names = ", ".join(f"{name} ({count})" for name, count in sorted(by_name.items()))
    return f"{run.name}: {len(missing):,} of {counted(len(planned), 'planned result')} are not there yet: {names}."


def _wnr(value: Any) -> float:
    return float(value) if isinstance(value, int | float | str) else math.nan


def _read_config(path: Path) -> dict[str, Any]:
    """The configuration; empty if there is none, since records alone are enough to draw."""
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not JSON ({error}); restore it or remove it") from error
    if not isinstance(config, dict):
        raise InvalidConfig(f"{path} holds a {type(config).__name__}; a configuration is a JSON object")
    if reason := config_problem(config):
        raise InvalidConfig(f"{path}: {reason}; restore the file or remove it")
    return config
