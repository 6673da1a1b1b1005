"""Run folders to findings and files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reports.shortcuts import analyse

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.analysis import sentences, to_json
from quietnn.reports.write import write_analysis

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


def test_the_gains_put_in_come_out(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(num_draws=8, spread_db=0.2, with_trials=False))
    (task,) = analyse(folder).tasks
    gains = {curve.method: gain for curve, gain in zip(task.curves, task.gains, strict=True)}
    assert task.level == 0.6
    assert gains["ml"] is None
    for method, expected in (("mmse", -0.6), ("mmse_pb", 1.0), ("mmse_pb_layerwise", 3.0)):
        gain = gains[method]
        assert gain is not None
        assert gain.gain_db == pytest.approx(expected, abs=0.15)
    assert task.best is not None
    assert task.curves[task.best].method == "mmse_pb_layerwise"


def test_an_oracle_never_wins(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    methods = ("ml", "mmse_pb", "mmse_pb_oracle")
    folder = write_run(tmp_path / "run", make_records(methods=methods, with_trials=False))
    (task,) = analyse(folder).tasks
    assert task.best is not None
    assert task.curves[task.best].method == "mmse_pb"
    assert any("tuned on test data, so it is a bound" in line for line in sentences(task))


def test_levels_follow_the_task_unless_given(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(task="sst2/minilm", with_trials=False))
    assert analyse(folder).tasks[0].level == 0.75
    assert analyse(folder, level=0.5).tasks[0].level == 0.5


def test_curves_that_never_cross_are_said_so(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    methods = ("ml", "mmse_pb_layerwise")
    folder = write_run(tmp_path / "run", make_records(methods=methods, wnrs=(-8.0, -7.0), with_trials=False))
    (task,) = analyse(folder).tasks
    found = sentences(task)
    assert "ML stays below 60 % up to -7 dB." in found
    assert "MMSE_pb layerwise stays above 60 % down to -8 dB." in found
    (task,) = analyse(folder, level=0.85).tasks
    assert any("ML stays below 85 % up to -7 dB; gain above" in line for line in sentences(task))
    assert task.best is None


def test_without_ml_there_is_nothing_to_gain_over(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(methods=("mmse", "novel"), with_trials=False))
    analysis = analyse(folder)
    assert set(analysis.tasks[0].gains) == {None}
    assert any("No ML curve" in line for line in sentences(analysis.tasks[0]))
    assert (tmp_path / "out" / "report.html") in write_analysis(analysis, tmp_path / "out")


def test_runs_of_one_task_meet_in_one_figure_and_each_keeps_its_own_ml(
    make_records: Make, write_run: Write, tmp_path: Path
) -> None:
    few = write_run(tmp_path / "a", make_records(run="few", methods=("ml", "mmse_pb"), num_tuning_examples=10))
    many = write_run(tmp_path / "b", make_records(run="many", methods=("ml", "mmse_pb"), num_tuning_examples=80))
    (task,) = analyse(few, many).tasks
    labels = [curve.label for curve in task.curves]
    assert labels == ["ML (few)", "ML (many)", "MMSE_pb (κ = 10)", "MMSE_pb (κ = 80)"]
    for curve, reference in zip(task.curves, task.references, strict=True):
        assert reference is not None
        assert set(curve.runs) & set(reference.runs)


def test_the_numbers_are_plain_json(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = to_json(analyse(write_run(tmp_path / "run", make_records(num_draws=1, with_trials=False))))
    (task,) = json.loads(json.dumps(found, allow_nan=False))["tasks"]
    by_method = {curve["method"]: curve for curve in task["curves"]}
    assert by_method["ml"]["gain"] is None
    assert by_method["mmse_pb"]["gain"]["low"] is None
    assert by_method["mmse_pb"]["std"] == [None] * 7
    assert task["clean_accuracy"] == 0.98


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\nnot json\n{}\n', "line 2 is not a record"),
        (
            b'{"method": "ml", "wnr_db": 0, "draw": 0}\n',
            "line 1 is not a record .accuracy is missing",
        ),
        (b"\xff\xfe\x00\n", "line 1 is not a record"),
    ],
)
def test_broken_records_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(content)
    with pytest.raises(InvalidConfig, match=message):
        analyse(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]


def test_one_folder_twice_is_a_mistake(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(methods=("ml",), num_draws=1))
    with pytest.raises(InvalidConfig, match="given 2 times"):
        analyse(folder, tmp_path / "run" / "." / "records.jsonl")
