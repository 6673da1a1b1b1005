"""The Ray engine, for real: a local cluster, and a worker of it killed in the middle."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietnn.errors import MissingData
from quietnn.experiments.engines import key_of
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.records import Record

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::FutureWarning:ray")]
ray = pytest.importorskip("ray", reason="the [ray] extra is not installed")

CONFIG = NoisyInference(
    "mini", "digits", (4.0, 8.0), ("ml", "mmse_pb"), num_draws=3, num_tuning_examples=20, num_test_examples=50
)


def without_times(found: list[Record]) -> list[Record]:
    plain = [{key: value for key, value in record.items() if key != "seconds"} for record in found]
    return sorted(plain, key=lambda record: str(key_of(record)))


def ray_workers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_run_unit"):
                found.append(int(entry.name))
    return found


def test_ray_makes_the_same_records_even_when_a_worker_is_killed(tmp_path: Path) -> None:
    expected = without_times(sweep(CONFIG, tmp_path / "inline", engine="inline"))
    killed: list[int] = []

    def kill_one(record: Record, done: int, total: int) -> None:
        workers = ray_workers()
        if not killed and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    found = sweep(CONFIG, tmp_path / "ray", engine="ray", num_workers=2, on_record=kill_one)
    assert killed, "no Ray worker was seen at work"
    assert without_times(found) == expected


def test_an_error_in_a_ray_task_reaches_the_caller_as_it_was(tmp_path: Path) -> None:
    config = NoisyInference("none", "cifar10/resnet20", (4.0,), ("ml",))
    with pytest.raises(MissingData):
        sweep(config, tmp_path / "run", engine="ray", num_workers=1, data_dir=tmp_path / "nothing")


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a cluster that somebody else started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = Path(sys.executable).with_name("ray")
    options = ["--head", "--port", str(port), "--num-cpus", "1", "--include-dashboard", "false"]
    # What the tests before this one left behind may still be on its way out, and would be taken for a cluster.
    subprocess.run([command, "stop", "--force"], check=False, capture_output=True, timeout=120)
    started = subprocess.run(
        [command, "start", "--node-ip-address", "127.0.0.1", "--disable-usage-stats", *options],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert started.returncode == 0, started.stdout + started.stderr
    try:
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([command, "stop", "--force"], check=False, capture_output=True, timeout=120)


def test_a_cluster_that_is_there_is_used_by_its_address_and_stays(tmp_path: Path, cluster: str) -> None:
    expected = without_times(sweep(CONFIG, tmp_path / "inline", engine="inline"))
    found = sweep(CONFIG, tmp_path / "ray", engine="ray", num_workers=1, address=cluster)
    assert without_times(found) == expected
    ray.init(address=cluster, log_to_driver=False)  # it outlives the sweep
    ray.shutdown()
