"""The server app, run without processes."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Context, RecordDict

from quietnn.federated.flower.server_app import main
from quietnn.records import read

pytestmark = pytest.mark.flower

RUN_CONFIG = {
    "num-devices": 20,
    "num-active": 2,
    "num-rounds": 2,
    "num-epochs": 1,
    "batch-size": 36,
    "learning-rate": 0.05,
    "patience": 0.0,
}


def run(grid: object, config: dict[str, object]) -> None:
    main(grid, Context(1, 0, {}, RecordDict(), config))  # type: ignore[arg-type]


def test_the_server_app_keeps_a_record_of_every_round(local_grid: Callable, tmp_path: Path) -> None:
    config = RUN_CONFIG | {"folder": str(tmp_path)}
    run(local_grid(20, config), config)
    found = read(tmp_path / "rounds.jsonl")
    assert [record["round"] for record in found] == [1, 2]
    assert all(0 <= record["accuracy"] <= 1 and record["noise_variance"] > 0 for record in found)
    again = local_grid(20, config)
    run(again, config)
    assert again.asked == []
    assert read(tmp_path / "rounds.jsonl") == found


def test_a_run_that_diverges_ends_with_a_record_and_without_a_crash(local_grid: Callable, tmp_path: Path) -> None:
    config = RUN_CONFIG | {"folder": str(tmp_path), "learning-rate": 1e30}
    run(local_grid(20, config), config)
    last = read(tmp_path / "rounds.jsonl")[-1]
    assert last["status"] == "diverged"
    assert f"round {last['round']}" in last["reason"]
