"""The two apps, run without processes, and the settings they share."""

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Context, RecordDict

from quietnn.errors import QuietnnError
from quietnn.federated.flower.server_app import main
from quietnn.federated.flower.task import Settings
from quietnn.records import read

pytestmark = pytest.mark.flower

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_app" / "pyproject.toml"
RUN_CONFIG = {
    "num-devices": 20,
    "num-active": 2,
    "num-rounds": 2,
    "num-epochs": 1,
    "batch-size": 36,
    "learning-rate": 0.05,
    "patience": 0.0,
}


def test_the_example_app_has_every_setting_at_its_default() -> None:
    project = tomllib.loads(EXAMPLE.read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    assert Settings.from_run_config(config) == Settings()
    assert {key.replace("-", "_") for key in config} == {field.name for field in dataclasses.fields(Settings)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num-round": 3}, "did you mean 'num-rounds'"),
        ({"num-rounds": 2.5}, "num-rounds is 2.5"),
        ({"num-rounds": True}, "num-rounds is True"),
        ({"method": "mmes"}, "did you mean 'mmse'"),
        ({"method": "mmse_pb_oracle"}, "method is 'mmse_pb_oracle'"),
        ({"fading": "inversions"}, "did you mean 'inversion'"),
        ({"fading": "inversion", "csi-error": 0.1}, "set a power_cap"),
        ({"fading": "phase", "power-cap": 2.0}, "belong to channel inversion"),
        ({"dropout": 1.5}, "dropping out is 1.5"),
        ({"power": "variances"}, "did you mean 'variance'"),
        ({"num-active": 21}, "21 of 20 devices"),
        ({"momentum": -0.5}, "momentum is -0.5"),
        ({"wnr-db": float("nan")}, "nan"),
    ],
)
def test_settings_that_do_not_fit_are_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(QuietnnError, match=message):
        Settings.from_run_config(config)


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
