"""The app in Flower's own simulation (Ray) is the same federation as the one in process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from safetensors.torch import load_file

from quietnn.federated.flower.task import Settings
from quietnn.federated.rounds import ServerState, run_round
from quietnn.records import read

pytestmark = pytest.mark.flower

RUN_CONFIG = {
    "num-devices": 10,
    "num-active": 2,
    "num-rounds": 2,
    "num-epochs": 1,
    "batch-size": 36,
    "learning-rate": 0.05,
    "wnr-db": -3.0,
    "fading": "inversion",
    "csi-error": 0.1,
    "power-cap": 5.0,
    "dropout": 0.3,
}


def test_flowers_simulation_gives_the_weights_of_the_simulator_in_process(
    commands: Any, free_port: Callable[[], int], app_folder: Path, tmp_path: Path
) -> None:
    port, out = free_port(), tmp_path / "out"
    commands.connect("simulation", port)
    commands.start(
        "superlink",
        "flower-superlink",
        *("--simulation", "--insecure", "--host", "127.0.0.1", "--port", str(port)),
        "--disable-runtime-dependency-installation",
    )
    commands.wait_until("SuperLink", lambda: "Uvicorn running" in commands.log("superlink"))
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in RUN_CONFIG.items())
    commands.run(
        "run",
        "flwr",
        *("run", str(app_folder), "simulation", "--run-config", f'{config} folder="{out}"'),
        *("--federation-config", "num-supernodes=10 client-resources-num-cpus=1 init-args-num-cpus=1"),
    )
    commands.wait_until("two rounds", lambda: len(read(out / "rounds.jsonl")) == 2, timeout=240)

    settings = Settings.from_run_config(RUN_CONFIG)
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    federation = settings.federation(task, settings.devices(task))
    server = ServerState.initial(model)
    for found in read(out / "rounds.jsonl"):
        server, expected = run_round(federation, model, server)
        assert found["devices"] == expected["devices"]
        assert found["noise_variance"] == pytest.approx(expected["noise_variance"], rel=1e-6)
    stored = load_file(out / "server.safetensors")
    for name, tensor in server.state.items():
        difference = (stored[f"state/{name}"].double() - tensor.double()).abs().max()
        assert difference <= 1e-6 * tensor.double().abs().max().clamp_min(1e-30), name
