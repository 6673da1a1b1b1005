"""A sweep ends with the same records whatever the engine and however often it was killed."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from quietnn import records
from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.experiments.config import load_config
from quietnn.experiments.engines import key_of
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.sweep import sweep
from quietnn.records import Record
from quietnn.tasks.base import Task
from quietnn.tasks.registry import load_task

CONFIG = """
name = "mini"
task = "digits"
wnr_db = [4, 8]
num_draws = 3
methods = ["ml", "mmse", "mmse_pb"]
num_tuning_examples = 20
num_test_examples = 50
"""
SMALL = NoisyInference(
    "mini", "digits", (4.0, 8.0), ("ml", "mmse", "mmse_pb"), num_draws=3, num_tuning_examples=20, num_test_examples=50
)


def without_times(found: list[Record]) -> list[Record]:
    plain = [{key: value for key, value in record.items() if key != "seconds"} for record in found]
    return sorted(plain, key=lambda record: str(key_of(record)))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return without_times(sweep(SMALL, tmp_path_factory.mktemp("whole"), engine="inline"))


def test_one_record_for_each_wnr_draw_and_method_and_one_for_the_clean_network(uninterrupted: list[Record]) -> None:
    assert len(uninterrupted) == 2 * 3 * 3 + 1
    clean = [record for record in uninterrupted if record["method"] == "clean"]
    assert [record["wnr_db"] for record in clean] == [float("inf")]
    assert {record["config"] for record in uninterrupted} == {SMALL.digest}


def test_run_yields_the_same_records_without_a_folder(uninterrupted: list[Record]) -> None:
    assert without_times(list(SMALL.run())) == uninterrupted


def test_worker_processes_make_the_same_records(tmp_path: Path, uninterrupted: list[Record]) -> None:
    assert without_times(sweep(SMALL, tmp_path, engine="processes", num_workers=2)) == uninterrupted


def test_task_and_data_are_loaded_once_for_all_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    def load(name: str, **options: object) -> Task:
        loads.append(name)
        return load_task(name, **options)

    monkeypatch.setattr("quietnn.experiments.noisy_inference.load_task", load)
    sweep(SMALL, tmp_path, engine="inline")
    assert loads == ["digits"]


def test_a_killed_worker_process_is_replaced(tmp_path: Path, uninterrupted: list[Record]) -> None:
    killed: list[int] = []

    def kill_one(record: Record, done: int, total: int) -> None:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        if not killed and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    found = sweep(SMALL, tmp_path, engine="processes", num_workers=2, on_record=kill_one)
    assert killed
    assert without_times(found) == uninterrupted == without_times(records.read(tmp_path / "records.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_killed_ten_times_at_random_moments_nothing_is_lost_and_nothing_is_twice(tmp_path: Path, engine: str) -> None:
    uninterrupted = without_times(list(replace(SMALL, num_draws=8).run()))
    (tmp_path / "mini.toml").write_text(CONFIG.replace("num_draws = 3", "num_draws = 8"))
    command = [sys.executable, "-m", "quietnn.cli.main", "sweep", str(tmp_path / "mini.toml")]
    command += ["--out", str(tmp_path / "run"), "--engine", engine, "--workers", "1"]
    path = tmp_path / "run" / "records.jsonl"
    moments, hits = random.Random(0), 0
    for _ in range(10):
        before = len(records.read(path))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        # Wait for the run to be under way, so that the kill hits the work and not the imports.
        while len(records.read(path)) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.05))
        hits += process.poll() is None
        process.kill()
        process.wait()
    assert hits == 10
    subprocess.run(command, check=True, capture_output=True)
    assert without_times(records.read(path)) == uninterrupted


def damage(path: Path, rng: random.Random) -> None:
    """What a failing disk does: other bytes, a lost end, a lost or doubled piece."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    match rng.randrange(4):
        case 0:
            content[place] = (content[place] + rng.randrange(1, 256)) % 256
        case 1:
            del content[place:]
        case 2:
            del content[place : place + rng.randrange(1, 200)]
        case _:
            content[place:place] = content[place : place + rng.randrange(1, 200)]
    path.write_bytes(content)


@pytest.mark.slow
def test_killed_and_damaged_at_random_the_rest_is_made_again_and_nothing_wrong_stays(tmp_path: Path) -> None:
    """Ten times, or as often as $QUIETNN_NUM_KILLS says."""
    num_kills, rng = int(os.environ.get("QUIETNN_NUM_KILLS", "10")), random.Random(3)
    config = replace(SMALL, num_draws=4 * num_kills)
    (tmp_path / "mini.toml").write_text(CONFIG.replace("num_draws = 3", f"num_draws = {config.num_draws}"))
    command = [sys.executable, "-m", "quietnn.cli.entry", "sweep", str(tmp_path / "mini.toml")]
    command += ["--out", str(tmp_path / "run"), "--engine", "inline"]
    path = tmp_path / "run" / "records.jsonl"
    hits = set_aside = 0
    for _ in range(num_kills):
        before = len(records.read_sound(path)[0])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(records.read_sound(path)[0]) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        hits += process.poll() is None
        process.kill()
        process.wait()
        damage(path, rng)
        if rng.random() < 0.3:
            damage(tmp_path / "run" / "config.json", rng)
        set_aside += len(records.read_sound(path)[1])
    last = subprocess.run(command, check=True, capture_output=True, text=True)
    uninterrupted = without_times(list(config.run()))
    assert without_times(records.read(path)) == uninterrupted
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "config.json",
        "records.damaged.jsonl",
        "records.jsonl",
    ]
    assert hits == num_kills
    assert set_aside
    assert "Traceback" not in last.stderr
    print(f"{num_kills} kills, {set_aside} lines set aside, {len(uninterrupted)} records the same")


def test_a_damaged_line_is_said_set_aside_and_made_again(tmp_path: Path, uninterrupted: list[Record]) -> None:
    sweep(SMALL, tmp_path, engine="inline")
    path = tmp_path / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"accuracy": ', b'"accuracy": 1'), *lines[5:]]))
    (tmp_path / "config.json").write_text("{")
    told: list[records.Damage] = []
    made: list[Record] = []
    found = sweep(
        SMALL, tmp_path, engine="inline", on_damage=told.append, on_record=lambda record, *_: made.append(record)
    )
    assert without_times(found) == uninterrupted == without_times(records.read(path))
    assert len(made) == 1
    assert [damage.place for damage in told] == [f"{path}, line 5"]
    assert (tmp_path / "records.damaged.jsonl").read_bytes().count(b"\n") == 1
    assert json.loads((tmp_path / "config.json").read_text())["name"] == "mini"


@pytest.mark.parametrize("num_draws", [10**7, 99999999999999999999])
def test_absurd_work_is_refused_before_it_begins(tmp_path: Path, num_draws: int) -> None:
    (tmp_path / "mini.toml").write_text(CONFIG)
    with pytest.raises(InvalidConfig, match=r"num_draws is .*(at most|64 bits)"):
        load_config(NoisyInference, tmp_path / "mini.toml", overrides=[f"num_draws={num_draws}"])
    with pytest.raises(InvalidConfig, match=r"that is 6,000,000 records, and a run has 1,000,000 at most"):
        load_config(NoisyInference, tmp_path / "mini.toml", overrides=["num_draws=1_000_000"])


def test_a_run_can_be_extended_but_not_changed(tmp_path: Path, uninterrupted: list[Record]) -> None:
    first = NoisyInference("mini", "digits", (4.0,), ("ml",), num_draws=1, num_tuning_examples=20, num_test_examples=50)
    sweep(first, tmp_path, engine="inline")
    made: list[Record] = []
    found = sweep(SMALL, tmp_path, engine="inline", on_record=lambda record, done, total: made.append(record))
    assert without_times(found) == uninterrupted
    assert len(made) == len(uninterrupted) - 2
    other = NoisyInference("mini", "digits", (4.0,), ("ml",), num_tuning_examples=10, num_test_examples=50)
    with pytest.raises(InvalidConfig, match="num_tuning_examples was 20, is 10"):
        sweep(other, tmp_path, engine="inline")
    assert len(records.read(tmp_path / "records.jsonl")) == len(uninterrupted)


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_missing_data_is_a_clear_error_and_writes_no_record(tmp_path: Path, engine: str) -> None:
    config = NoisyInference("none", "cifar10/resnet20", (4.0,), ("ml",))
    with pytest.raises(MissingData):
        sweep(config, tmp_path / "run", engine=engine, data_dir=tmp_path / "nothing")
    assert not (tmp_path / "run" / "records.jsonl").exists()


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path, uninterrupted: list[Record]) -> None:
    """Another run there is refused before it works for nothing, reads on, and may write once the first is done."""
    folder = tmp_path / "run"
    with records.sole_writer(folder):
        with pytest.raises(InvalidConfig, match="another run is writing to"):
            sweep(SMALL, folder, engine="inline")
        assert records.read(folder / "records.jsonl") == []
    assert not folder.exists(), "nothing was put into it"
    assert without_times(sweep(SMALL, folder, engine="inline")) == uninterrupted
    with records.sole_writer(folder):
        assert without_times(sweep(SMALL, folder, engine="inline")) == uninterrupted, "all there: nothing to write"


@pytest.mark.parametrize("kind", ["own", "link", "here"])
def test_a_folder_that_was_there_stays(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what went wrong is said, whatever the folder is."""
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    config = replace(SMALL, task="cifar10/resnet20")
    given = {"own": folder, "link": tmp_path / "link", "here": Path()}[kind]
    with pytest.raises(MissingData):
        sweep(config, given, engine="inline", data_dir=tmp_path / "nothing")
    assert folder.exists()


def test_a_folder_that_was_removed_under_a_writer_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock would be on a folder that nobody finds any more."""
    flock = fcntl.flock

    def removed_first(descriptor: int, how: int) -> None:
        (tmp_path / "run").rmdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with pytest.raises(InvalidConfig, match="another run"), records.sole_writer(tmp_path / "run"):
        pass


def test_a_writer_that_is_killed_lets_go(tmp_path: Path) -> None:
    hold = (
        "import sys, time, pathlib, quietnn.records as r\n"
        "with r.sole_writer(pathlib.Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InvalidConfig, match="another run"), records.sole_writer(tmp_path):
            pass
        process.kill()
    with records.sole_writer(tmp_path):
        (tmp_path / "file").touch()


def test_unknown_engines_and_too_few_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QuietnnError, match="inline, processes, ray"):
        sweep(SMALL, tmp_path, engine="threads")
    with pytest.raises(QuietnnError, match="0 workers"):
        sweep(SMALL, tmp_path, num_workers=0)
