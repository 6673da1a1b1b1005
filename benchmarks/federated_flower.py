"""Seconds per round of one federation run three ways: bare local training, in one process, in Flower's simulation.

All three train the same devices on the same examples from the same weights, in one run: in process before and after
Flower, so that a machine whose load drifts does not favour either. Flower's simulation runs the app of
`examples/flower_app` with its Ray engine, as `flwr run` does, on one worker with one thread like the other two; the
seconds it needs besides its rounds are shown apart. A round is from the choice of devices to the tested new weights (in
Flower: checkpointed too), without the first one, in which workers import and load.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from quietnn.federated.devices import train_device
from quietnn.federated.flower.task import Settings
from quietnn.federated.rounds import ServerState, participants, run_round
from quietnn.records import read

APP = Path(__file__).parents[1] / "examples" / "flower_app"
BINARIES = Path(sys.executable).parent


def in_process(settings: Settings) -> tuple[list[float], list[float]]:
    """Seconds of the bare local training and of the whole round, alternating."""
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    federation = settings.federation(task, settings.devices(task))
    test = task.score_on(task.test)
    server, bare, whole = ServerState.initial(model), [], []
    for number in range(settings.num_rounds):
        chosen = participants(federation.devices, settings.num_active, round_number=number, seed=settings.seed)
        started = time.perf_counter()
        for device in chosen:
            data = federation.devices[device]
            train_device(model, server.state, data, settings, device=device, round_number=number, seed=settings.seed)
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        server, _ = run_round(federation, model, server)
        test(server.state)
        whole.append(time.perf_counter() - started)
    return bare[1:], whole[1:]


@contextmanager
def superlink(folder: Path) -> Iterator[dict[str, str]]:
    """A SuperLink for simulations on a free port of loopback; gives the environment that `flwr` finds it with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (folder / "config.toml").write_text(text)
    environment = os.environ | {
        "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / "superlink.log"
    command = ["--simulation", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(BINARIES / "flower-superlink"), *command, "--disable-runtime-dependency-installation"],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: b"Uvicorn running" in log.read_bytes(), 120, "the SuperLink did not start")
            yield environment
        finally:
            process.terminate()
            process.wait(30)


def in_flower(settings: Settings, run_config: dict[str, str], folder: Path) -> tuple[float, list[float]]:
    """Seconds until the first round, and of every later round, in Flower's simulation."""
    out = folder / "out"
    overrides = " ".join(f"{key}={value}" for key, value in run_config.items())
    simulation = f"num-supernodes={settings.num_devices} client-resources-num-cpus=1 init-args-num-cpus=1"
    with superlink(folder) as environment:
        started = time.perf_counter()
        subprocess.run(
            [
                *(str(BINARIES / "flwr"), "run", str(APP), "here"),
                *("--run-config", f'{overrides} folder="{out}"', "--federation-config", simulation),
            ],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rounds = out / "rounds.jsonl"
        wait_until(lambda: len(read(rounds)) == settings.num_rounds, 3600, "Flower did not finish the rounds")
        found = [record["seconds"] for record in read(rounds)]
        return time.perf_counter() - started - sum(found), found[1:]


def wait_until(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Look again and again until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(otherwise)
        time.sleep(0.1)


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-rounds", type=int, default=8, help="the first is not counted")
    parser.add_argument("--num-epochs", type=int, default=5)
    parser.add_argument("--task", default="digits", help="or cifar10/plain-cnn and the like, with data")
    parser.add_argument("--method", default="mmse_layerwise")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run_config = {
        "task": f'"{arguments.task}"',
        "method": f'"{arguments.method}"',
        "num-rounds": str(arguments.num_rounds),
        "num-epochs": str(arguments.num_epochs),
    }
    settings = Settings(
        task=arguments.task, method=arguments.method, num_rounds=arguments.num_rounds, num_epochs=arguments.num_epochs
    )
    folder = Path(tempfile.mkdtemp())
    try:
        first = in_process(settings)
        before, flower = in_flower(settings, run_config, folder)
        second = in_process(settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bare, whole = ([*one, *two] for one, two in zip(first, second, strict=True))
    rows = {"bare local training": bare, "in process": whole, "Flower's simulation": flower}
    print(
        f"{settings.task}, {settings.num_active} of {settings.num_devices} devices, {settings.num_epochs} local epochs,"
        f" {settings.method}, one worker with one thread; median of {len(flower)} rounds ({len(bare)} in process);"
        f" load {os.getloadavg()[0]:.1f}"
    )
    for name, seconds in rows.items():
        median = statistics.median(seconds)
        print(f"{name:22s} {median:8.3f} s a round   {median / statistics.median(bare):6.2f} of bare training")
    print(f"Flower needed {before:.1f} s more before the first round and after the last")


if __name__ == "__main__":
    main()
