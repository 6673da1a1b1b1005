"""The settings that both apps share."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from quietnn.errors import QuietnnError
from quietnn.federated.flower.task import Settings, elsewhere

pytestmark = pytest.mark.flower

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_app" / "pyproject.toml"


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


def test_a_server_knows_the_numbers_of_its_devices_and_nothing_of_their_examples() -> None:
    settings = Settings(task="digits/mlp", method="mmse_pb")
    federation = settings.federation(settings.load_task(), elsewhere(20))
    assert [len(data) for data in federation.devices.values()] == [0] * 20
    assert federation.score is not None, "a scheme that searches is given validation examples"
    assert score_of("mmse") is None


def score_of(method: str) -> object:
    settings = Settings(task="digits/mlp", method=method)
    return settings.federation(settings.load_task(), elsewhere(20)).score
