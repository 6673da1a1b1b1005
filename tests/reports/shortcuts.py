"""Curves from plain numbers, and the analysis of folders, for tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quietnn.methods import style_of
from quietnn.reports.analysis import Analysis, analyse_runs
from quietnn.reports.curves import Curve
from quietnn.reports.runs import load_run


def make_curve(
    method: str, wnr_db: Sequence[float], accuracies: Sequence[Sequence[float]], *, label: str = ""
) -> Curve:
    """A curve at ascending WNRs, draw by draw."""
    draws = tuple((0, draw) for draw in range(len(accuracies)))
    name = label or style_of(method).label
    return Curve(method, name, ("",), draws, np.asarray(wnr_db, dtype=float), np.asarray(accuracies, dtype=float))


def analyse(*folders: Path, level: float | None = None) -> Analysis:
    return analyse_runs([load_run(folder) for folder in folders], level=level)
