"""Records of noisy training to curves, gains and figures."""

import math
from pathlib import Path

import pytest

from quietnn import records
from quietnn.records import Record
from quietnn.reports.analysis import TaskAnalysis, training_analyses
from quietnn.reports.write import write_federated_report


def record(method: str, wnr_db: float, draw: int, accuracy: float | None) -> Record:
    return {
        "experiment": "noisy_training",
        "run": "made up",
        "task": "digits",
        "method": method,
        "wnr_db": wnr_db,
        "draw": draw,
        "seed": draw,
        "status": "finished" if accuracy is not None else "diverged",
        "diverged_round": 3,
        "accuracy": accuracy,
        "tested_rounds": [1, 2],
        "round_accuracy": [0.1, accuracy or 0.1],
        "num_passes": 0,
        "seconds": 1.0,
        "deployed_wnr_db": [0.0, 10.0],
        "deployed_ml": [0.1, 0.5],
        "deployed_mmse_layerwise": [0.2, 0.6],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = [record("clean", math.inf, draw, 0.9) for draw in range(2)]
    for draw in range(2):
        made += [record("ml", wnr_db, draw, accuracy) for wnr_db, accuracy in ((-20.0, 0.2), (-10.0, 0.5), (0.0, 0.9))]
        made += [
            record("planned", wnr_db, draw, accuracy) for wnr_db, accuracy in ((-20.0, 0.5), (-10.0, 0.9), (0.0, 0.9))
        ]
    made.append({**record("0.5 0", -20.0, -1, 0.99), "experiment": "noisy_training_selection"})
    records.append(tmp_path / "records.jsonl", made)
    return tmp_path


def analysed(folder: Path, level: float | None = None) -> TaskAnalysis:
    (task,) = training_analyses(records.read(folder / "records.jsonl"), level=level, num_resamples=100)
    return task


def test_gains_are_read_from_the_curves(folder: Path) -> None:
    report = analysed(folder, level=0.7)
    assert report.clean == (pytest.approx(0.9), 0)
    assert [curve.method for curve in report.curves] == ["ml", "planned"]
    gain = report.gains[1]
    assert gain is not None
    assert gain.gain_db == pytest.approx(10.0)
    assert report.best == 1
    assert any("gain +10.00 dB" in sentence for sentence in write_federated_report(folder, level=0.7))


def test_a_run_that_diverged_counts_as_guessing_and_is_named(folder: Path) -> None:
    records.append(folder / "records.jsonl", [record("ml", -30.0, 0, None)])
    report = analysed(folder)
    assert report.curves[0].mean[0] == pytest.approx(0.1)
    said = write_federated_report(folder)
    assert any("ml at -30 dB, draw 0, diverged in round 3" in sentence for sentence in said)


def test_everything_is_written_beside_the_records(folder: Path) -> None:
    write_federated_report(folder)
    names = {path.name for path in folder.iterdir()}
    assert {"summary.md", "accuracy.csv", "gains.csv", "accuracy.png", "rounds.svg", "deployed.png"} <= names
    assert "0.5 0" not in (folder / "summary.md").read_text(), "candidates are no results"


def test_a_folder_without_such_records_gets_no_report(tmp_path: Path) -> None:
    assert write_federated_report(tmp_path) == []
    assert not list(tmp_path.iterdir())
