"""Records to accuracy-against-WNR curves: one matrix of draws by WNRs for each method."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietnn.errors import InvalidConfig
from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.records.schema import INFERENCE, problem

FloatArray = NDArray[np.float64]

_Key = tuple[str, str, int]
"""Method, run, number of tuning examples."""

_Cells = dict[tuple[float, tuple[int, int]], float]
"""Accuracy by WNR and draw."""

_UNTUNED = {"ml", "mmse", "mmse_layerwise", CLEAN}


@dataclass(frozen=True, eq=False)
class Curve:
    """The accuracy of one method against the WNR, every noise draw kept.

    Attributes:
        method: the name in the records.
        label: the name a reader sees; tells apart runs and tuning sizes where they differ.
        runs: the runs it was measured in; several if they hold the very same results.
        draws: the noise draws, `(seed, draw)`, one for each row.
        wnr_db: the WNRs in ascending order, shape `(num_wnrs,)`.
        accuracies: shape `(num_draws, num_wnrs)`; NaN where a result is missing.
    """

    method: str
    label: str
    runs: tuple[str, ...]
    draws: tuple[tuple[int, int], ...]
    wnr_db: FloatArray
    accuracies: FloatArray

    @property
    def num_draws(self) -> int:
        """How many noise draws there are, whole or in part."""
        return len(self.draws)

    @property
    def measured(self) -> FloatArray:
        """The WNRs with a result of any draw."""
        return self.wnr_db[np.isfinite(self.mean)]

    @property
    def mean(self) -> FloatArray:
        """The mean over the draws at each WNR."""
        counts = self.counts
        return np.where(counts > 0, np.nansum(self.accuracies, axis=0) / np.maximum(counts, 1), np.nan)

    @property
    def std(self) -> FloatArray:
        """The standard deviation over the draws at each WNR (ddof = 1); NaN below two draws."""
        squares = np.nansum((self.accuracies - self.mean) ** 2, axis=0)
        return np.where(self.counts > 1, np.sqrt(squares / np.maximum(self.counts - 1, 1)), np.nan)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many draws were measured at each WNR."""
        return np.asarray(np.isfinite(self.accuracies).sum(axis=0), dtype=np.int64)


def make_curve(
    method: str, wnr_db: Sequence[float], accuracies: Sequence[Sequence[float]], *, label: str = "", run: str = ""
) -> Curve:
    """A curve from plain numbers, draw by draw.

    >>> make_curve("ml", [0.0, 6.0], [[0.2, 0.8], [0.4, 0.6]]).mean.tolist()
    [0.30000000000000004, 0.7]
    """
    order = np.argsort(np.asarray(wnr_db, dtype=float))
    matrix = np.asarray(accuracies, dtype=float)
    return Curve(
        method=method,
        label=label or style_of(method).label,
        runs=(run,),
        draws=tuple((0, draw) for draw in range(len(matrix))),
        wnr_db=np.asarray(wnr_db, dtype=float)[order],
        accuracies=matrix[:, order],
    )


def curves(records: Iterable[Record]) -> tuple[Curve, ...]:
    """The curves in the records of one task: one for each method, run and tuning size.

    Clean and noiseless results have no finite WNR and are left out (see `clean_accuracy`).

    Raises:
        InvalidConfig: for a record without what a curve needs, or two results for the same cell that differ.
    """
    cells: dict[_Key, _Cells] = defaultdict(dict)
    for number, record in enumerate(records, start=1):
        if reason := problem({**record, "experiment": INFERENCE}):
            raise InvalidConfig(f"record {number}: {reason}")
        if record["method"] == CLEAN or math.isinf(record["wnr_db"]):
            continue
        key = (record["method"], str(record.get("run", "")), _tuning_size(record))
        place = (float(record["wnr_db"]), (int(record.get("seed") or 0), int(record["draw"])))
        accuracy = float(record["accuracy"])
        if (before := cells[key].setdefault(place, accuracy)) != accuracy:
            wnr_db, (seed, draw) = place
            raise InvalidConfig(
                f"two results for {key[0]} at {wnr_db:g} dB, seed {seed}, draw {draw} differ ({before:g} and "
                f"{accuracy:g}): the records mix two configurations; give each its own run folder"
            )
    owners = _merge_same(cells)
    labels = _labels(list(owners))
    ordered = sorted(owners, key=lambda key: (rank(key[0]), key[2], key[1]))
    return tuple(_assemble(key[0], labels[key], owners[key], cells[key]) for key in ordered)


def at_mean_wnr(records: Sequence[Record]) -> list[Record]:
    """The records of a channel that is set by bits or seconds, each at the mean WNR of its level.

    What such a channel's noise amounts to differs a little from draw to draw; a curve needs one place for all of them.

    >>> found = [{"level": 4, "draw": 0, "wnr_db": 9.9}, {"level": 4, "draw": 1, "wnr_db": 10.1}, {"wnr_db": 3.0}]
    >>> [record["wnr_db"] for record in at_mean_wnr(found)]
    [10.0, 10.0, 3.0]
    """
    found: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    moved = [record.get("level") is not None and math.isfinite(record["wnr_db"]) for record in records]
    for record in itertools.compress(records, moved):
        found[record.get("run"), record["level"]].append(record["wnr_db"])
    means = {key: round(sum(wnrs) / len(wnrs), 2) for key, wnrs in found.items()}
    return [
        {**record, "wnr_db": means[record.get("run"), record["level"]]} if is_moved else record
        for record, is_moved in zip(records, moved, strict=True)
    ]


def clean_accuracy(records: Iterable[Record]) -> tuple[float, int] | None:
    """The accuracy without noise and the number of test examples behind it, if a record holds it."""
    for record in records:
        if record.get("method") == CLEAN:
            return float(record["accuracy"]), int(record.get("num_test_examples") or 0)
    return None


def _tuning_size(record: Record) -> int:
    """The number of tuning examples, zero for what needs none, so that kappa never splits an ML curve."""
    return 0 if record["method"] in _UNTUNED else int(record.get("num_tuning_examples") or 0)


def _merge_same(cells: Mapping[_Key, _Cells]) -> dict[_Key, tuple[str, ...]]:
    """The curves to keep, each with the runs that hold it: ML repeated in every run of a study is one curve."""
    owners: dict[_Key, tuple[str, ...]] = {}
    for key in cells:
        method, run, size = key
        twin = next((k for k in owners if (k[0], k[2]) == (method, size) and cells[k] == cells[key]), key)
        owners[twin] = (*owners.get(twin, ()), run)
    return owners


def _labels(keys: Sequence[_Key]) -> dict[_Key, str]:
    """The method's name, with kappa where it varies and the run where that still leaves a choice."""
    labels = {}
    for method, run, size in keys:
        rivals = [key for key in keys if key[0] == method]
        details = []
        if len({key[2] for key in rivals}) > 1:
            details.append(f"κ = {size}")
        if sum(key[2] == size for key in rivals) > 1:
            details.append(run)
        suffix = f" ({', '.join(details)})" if details else ""
        labels[method, run, size] = style_of(method).label + suffix
    return labels


def _assemble(method: str, label: str, runs: tuple[str, ...], cell: _Cells) -> Curve:
    wnrs = sorted({wnr for wnr, _ in cell})
    draws = sorted({draw for _, draw in cell})
    columns = {wnr: column for column, wnr in enumerate(wnrs)}
    rows = {draw: row for row, draw in enumerate(draws)}
    accuracies = np.full((len(draws), len(wnrs)), np.nan)
    for (wnr, draw), accuracy in cell.items():
        accuracies[rows[draw], columns[wnr]] = accuracy
    return Curve(method, label, runs, tuple(draws), np.asarray(wnrs), accuracies)
