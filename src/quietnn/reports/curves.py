"""Records to curves against the WNR: one matrix of draws by WNRs for each method."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietnn.errors import InvalidConfig
from quietnn.methods import CLEAN, rank, style_of
from quietnn.records import Record
from quietnn.records.right import unpacked
from quietnn.records.schema import INFERENCE, problem
from quietnn.reports.quantities import ACCURACY, Quantity

FloatArray = NDArray[np.float64]

_Key = tuple[str, str, int]
"""Method, run, number of tuning examples."""

_Place = tuple[float, tuple[int, int]]
"""A WNR and a draw."""

_Cells = dict[_Place, float]
"""Merit by place."""

_Answers = dict[_Place, tuple[str, int, str]]
"""Answers as text, how many there are, and what decided which test examples they are for, by place."""

_UNTUNED = {"ml", "mmse", "mmse_layerwise", CLEAN}


@dataclass(frozen=True, eq=False)
class Curve:
    """The accuracy of one method against the WNR, or another quantity, every noise draw kept.

    Attributes:
        method: the name in the records.
        label: the name a reader sees; tells apart runs and tuning sizes where they differ.
        runs: the runs it was measured in; several if they hold the very same results.
        draws: the noise draws, `(seed, draw)`, one for each row.
        wnr_db: the WNRs in ascending order, shape `(num_wnrs,)`.
        merits: shape `(num_draws, num_wnrs)`; accuracies, or what stands for them; NaN where a result is missing.
        quantity: what it is a curve of.
        right: shape `(num_draws, num_wnrs, num_test_examples)`, which answers are right; False where a result is
            missing. None where records do not tell, or not of the same test examples.
        tested: names the test examples; curves of one name were tested on the same.
    """

    method: str
    label: str
    runs: tuple[str, ...]
    draws: tuple[tuple[int, int], ...]
    wnr_db: FloatArray
    merits: FloatArray
    quantity: Quantity = ACCURACY
    right: NDArray[np.bool_] | None = None
    tested: str = ""

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
        return np.where(counts > 0, np.nansum(self.merits, axis=0) / np.maximum(counts, 1), np.nan)

    @property
    def std(self) -> FloatArray:
        """The standard deviation over the draws at each WNR (ddof = 1); NaN below two draws."""
        squares = np.nansum((self.merits - self.mean) ** 2, axis=0)
        return np.where(self.counts > 1, np.sqrt(squares / np.maximum(self.counts - 1, 1)), np.nan)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many draws were measured at each WNR."""
        return np.asarray(np.isfinite(self.merits).sum(axis=0), dtype=np.int64)


def curves(records: Iterable[Record], quantity: Quantity = ACCURACY) -> tuple[Curve, ...]:
    """The curves in the records of one task: one for each method, run and tuning size.

    Clean and noiseless results have no finite WNR and are left out (see `clean_merit`).
    """
    cells: dict[_Key, _Cells] = defaultdict(dict)
    answers: dict[_Key, _Answers] = defaultdict(dict)
    for number, record in enumerate(records, start=1):
        if reason := problem({**record, "experiment": INFERENCE}):
            raise InvalidConfig(f"record {number}: {reason}")
        if record["method"] == CLEAN or math.isinf(record["wnr_db"]):
            continue
        # Kappa never splits the curve of a method that needs no examples.
        size = 0 if record["method"] in _UNTUNED else int(record.get("num_tuning_examples") or 0)
        key = (record["method"], str(record.get("run", "")), size)
        place = (float(record["wnr_db"]), (int(record.get("seed") or 0), int(record["draw"])))
        merit = quantity.merit(record)
        before = cells[key].setdefault(place, merit)
        if record.get("right") and quantity is ACCURACY:
            answers[key][place] = (record["right"], record["num_test_examples"], str(record.get("config", "")))
        if before != merit and not math.isnan(before + merit):
            wnr_db, (seed, draw) = place
            raise InvalidConfig(
                f"two results for {key[0]} at {wnr_db:g} dB, seed {seed}, draw {draw} differ "
                f"({quantity.number(before):g} and {quantity.number(merit):g}): the records mix two configurations; "
                "give each its own run folder"
            )
    owners = _merge_same(cells)
    ordered = sorted(owners, key=lambda key: (rank(key[0]), key[2], key[1]))
    return tuple(
        _with_answers(_assemble(key[0], _label(key, ordered), owners[key], cells[key], quantity), answers[key])
        for key in ordered
    )


def at_mean_wnr(records: Sequence[Record]) -> list[Record]:
    """The records of a channel that is set by bits or seconds, each at the mean WNR of its level.

    What such a channel's noise amounts to differs a little from draw to draw; a curve needs one place for all of them.
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


def clean_merit(records: Iterable[Record], quantity: Quantity = ACCURACY) -> tuple[float, int] | None:
    """The accuracy without noise, or its like, and the number of test examples behind it, if a record holds it."""
    for record in records:
        if record.get("method") == CLEAN:
            return quantity.merit(record), int(record.get("num_test_examples") or 0)
    return None


def _merge_same(cells: Mapping[_Key, _Cells]) -> dict[_Key, tuple[str, ...]]:
    """The curves to keep, each with the runs that hold it: ML repeated in every run of a study is one curve."""
    owners: dict[_Key, tuple[str, ...]] = {}
    for key in cells:
        method, run, size = key
        twin = next((k for k in owners if (k[0], k[2]) == (method, size) and cells[k] == cells[key]), key)
        owners[twin] = (*owners.get(twin, ()), run)
    return owners


def _label(key: _Key, keys: Sequence[_Key]) -> str:
    """The method's name, with kappa where it varies and the run where that still leaves a choice."""
    method, run, size = key
    sizes = [other[2] for other in keys if other[0] == method]
    details = [f"κ = {size}"] if len(set(sizes)) > 1 else []
    details += [run] if sizes.count(size) > 1 else []
    return style_of(method).label + (f" ({', '.join(details)})" if details else "")


def _assemble(method: str, label: str, runs: tuple[str, ...], cell: _Cells, quantity: Quantity) -> Curve:
    wnrs = sorted({wnr for wnr, _ in cell})
    draws = sorted({draw for _, draw in cell})
    merits = [[cell.get((wnr, draw), np.nan) for wnr in wnrs] for draw in draws]
    return Curve(method, label, runs, tuple(draws), np.asarray(wnrs), np.asarray(merits), quantity)


def _with_answers(curve: Curve, answers: _Answers) -> Curve:
    """The curve with its answers, if there are some for every result and all of them for the same test examples."""
    kinds = {(count, tested) for _, count, tested in answers.values()}
    if len(kinds) != 1 or len(answers) < int(curve.counts.sum()):
        return curve
    ((count, tested),) = kinds
    right = np.zeros((*curve.merits.shape, count), dtype=np.bool_)
    for row, draw in enumerate(curve.draws):
        for column, wnr in enumerate(curve.wnr_db):
            if (wnr, draw) in answers:
                right[row, column] = unpacked(answers[wnr, draw][0], count)
    return replace(curve, right=right, tested=tested)
