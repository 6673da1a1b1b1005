"""The example for a user's own network runs as it stands."""

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "bring_your_own_model.py"


def test_it_runs_and_reports_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["clean", "received", "mmse", "mmse_pb", "mmse", "mmse_pb", "repaired"]
    accuracies = [float(row[1].rstrip("%")) for row in rows]
    assert accuracies[0] > 95.0
    assert accuracies[1] < accuracies[0] - 10.0
    assert max(accuracies[2:6]) > accuracies[1]
    assert accuracies[6] > accuracies[1] + 10.0
