"""Noisy training ends with the same records however often it was killed, and says so when it diverges."""

import json
import math
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from quietnn import records
from quietnn.errors import InvalidConfig
from quietnn.experiments.config import from_mapping, load_config, shipped_configs
from quietnn.experiments.federated_run import CHECKPOINTS
from quietnn.experiments.noisy_training import NoisyTraining, choose
from quietnn.experiments.sweep import sweep
from quietnn.federated.schemes import FIXED
from quietnn.records import Record

CONFIG = """
name = "mini"
task = "digits"
wnr_db = [-3]
methods = ["carried", "mmse_pb"]
num_draws = 1
num_devices = 10
num_active = 2
num_rounds = 4
num_epochs = 1
batch_size = 25
learning_rate = 0.05
num_tuning_examples = 20
num_progress_examples = 100
num_test_examples = 200
num_selection_examples = 100
test_every = 2
deploy_wnr_db = [10]
"""
CONFIGS = [path for name, path in shipped_configs().items() if name.startswith("federated-")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> NoisyTraining:
    path = tmp_path_factory.mktemp("config") / "mini.toml"
    path.write_text(CONFIG)
    return load_config(NoisyTraining, path)


def without_times(found: list[Record]) -> list[Record]:
    plain = [{key: value for key, value in record.items() if key != "seconds"} for record in found]
    return sorted(plain, key=lambda record: (record["method"], record["wnr_db"], record["draw"]))


@pytest.fixture(scope="module")
def uninterrupted(small: NoisyTraining, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return without_times(sweep(small, tmp_path_factory.mktemp("whole"), engine="inline"))


def test_one_record_for_each_run_with_its_history(uninterrupted: list[Record]) -> None:
    assert [record["method"] for record in uninterrupted] == ["carried", "clean", "mmse_pb"]
    for record in uninterrupted:
        assert record["status"] == "finished"
        assert record["tested_rounds"] == [2, 4]
        assert len(record["round_loss"]) == len(record["round_theta"]) == 4
        assert 0 <= record["deployed_ml"][0] <= 1
    clean, noisy = uninterrupted[1], uninterrupted[0]
    assert clean["wnr_db"] == math.inf
    assert set(clean["round_theta"]) == {1.0}
    assert max(noisy["round_theta"]) < 1.0


@pytest.mark.slow
def test_worker_processes_make_the_same_records(
    small: NoisyTraining, tmp_path: Path, uninterrupted: list[Record]
) -> None:
    assert without_times(sweep(small, tmp_path, engine="processes", num_workers=2)) == uninterrupted


@pytest.mark.slow
def test_killed_in_the_middle_of_runs_it_ends_the_same(tmp_path: Path, uninterrupted: list[Record]) -> None:
    (tmp_path / "mini.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "quietnn.cli.main", "federate", str(tmp_path / "mini.toml")]
    command += ["--out", str(tmp_path / "run")]
    moments, kills = random.Random(0), 0
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        folder, deadline = tmp_path / "run" / CHECKPOINTS, time.monotonic() + 120
        before = {path: path.stat().st_mtime_ns for path in folder.glob("*.safetensors")}
        # Wait until a round is finished, so that the kill hits the work and not the imports.
        while {p: p.stat().st_mtime_ns for p in folder.glob("*.safetensors")} == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.1))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills
    subprocess.run(command, check=True, capture_output=True)
    found = records.read(tmp_path / "run" / "records.jsonl")
    assert without_times(found) == uninterrupted
    assert (tmp_path / "run" / "summary.md").exists()


def test_where_every_fixed_candidate_diverges_the_run_says_so_and_the_sweep_goes_on(
    small: NoisyTraining, tmp_path: Path
) -> None:
    wild = replace(small, methods=(FIXED,), wnr_db=(-300.0,), name="wild", deploy_wnr_db=(), fixed=("1 0", "0.9 0"))
    found = {record["method"]: record for record in sweep(wild, tmp_path, engine="inline")}
    assert {found[text]["status"] for text in wild.fixed} == {"diverged"}
    assert found[FIXED]["status"] == "diverged"
    assert found["clean"]["status"] == "finished"


def test_a_diverging_run_ends_with_a_record_and_the_sweep_goes_on(small: NoisyTraining, tmp_path: Path) -> None:
    wild = replace(small, methods=("ml", "mmse"), wnr_db=(-300.0,), name="wild", deploy_wnr_db=())
    found = {record["method"]: record for record in sweep(wild, tmp_path, engine="inline")}
    assert found["ml"]["status"] == "diverged"
    assert found["ml"]["accuracy"] is None
    assert f"round {found['ml']['diverged_round']}" in found["ml"]["reason"]
    assert found["clean"]["status"] == "finished"
    assert set(found) == {"clean", "ml", "mmse"}, "the runs after the one that diverged were made too"


@pytest.mark.parametrize(
    "channel",
    [
        {"fading": "inversion", "csi_error": 0.1, "power_cap": 5.0},
        {"fading": "phase"},
        {"dropout": 0.5},
        {"told": True},
    ],
    ids=str,
)
def test_every_channel_can_be_trained_over(small: NoisyTraining, tmp_path: Path, channel: dict[str, object]) -> None:
    config = replace(small, methods=("mmse",), num_rounds=1, deploy_wnr_db=(), **channel)  # type: ignore[arg-type]
    assert {record["status"] for record in sweep(config, tmp_path, engine="inline")} == {"finished"}


def test_fixed_temperatures_are_chosen_on_another_seed_and_not_on_test_data(
    small: NoisyTraining, tmp_path: Path
) -> None:
    config = replace(
        small, methods=("mmse_pb_fixed", "mmse_pb_fixed_oracle"), fixed=("1 0", "0.3 0"), num_rounds=2, test_every=1
    )
    found = sweep(config, tmp_path, engine="inline")
    candidates = {record["method"]: record for record in found if record["draw"] == -1}
    assert set(candidates) == {"1 0", "0.3 0"}
    assert {record["seed"] for record in candidates.values()} == {config.selection_seed}
    fixed = next(record for record in found if record["method"] == "mmse_pb_fixed")
    best = max(candidates.values(), key=lambda record: record["validation_accuracy"])
    assert candidates[fixed["fixed"]]["validation_accuracy"] == best["validation_accuracy"]
    assert fixed["lambda_prime"] == pytest.approx(1 + 10**-0.3 * (1 - 1 / float(fixed["fixed"].split()[0])))
    assert fixed["seed"] == 0


def test_a_choice_needs_candidates_and_prefers_those_that_ended() -> None:
    run = {"draw": -1, "wnr_db": 0.0, "method": "1 0", "validation_accuracy": None}
    with pytest.raises(InvalidConfig, match="no candidate"):
        choose([run], ("1 0", "0.3 0"), 5.0, "validation_accuracy")
    assert choose([run], ("1 0", "0.3 0"), 0.0, "validation_accuracy") == "1 0"
    better = {**run, "method": "0.3 0", "validation_accuracy": 0.2}
    assert choose([run, better], ("1 0", "0.3 0"), 0.0, "validation_accuracy") == "0.3 0"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_ready_made_configurations_are_valid(path: Path) -> None:
    config = load_config(NoisyTraining, path)
    assert config.name == path.stem
    assert len(config.fixed) <= 6
    assert config.stages()[0][0].methods == ("clean",)
    if "paper" in path.stem:
        assert (config.num_rounds, config.num_epochs, config.batch_size, config.learning_rate) == (100, 5, 1024, 0.1)
        assert (config.momentum, config.weight_decay, config.num_devices, config.num_active) == (0.9, 5e-4, 20, 4)


KEPT = sorted((Path(__file__).parents[2] / "results").glob("federated-*/config.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_records_made_long_ago_still_belong_to_their_configuration(path: Path) -> None:
    values = json.loads(path.read_text())
    digest = values.pop("digest")
    config = from_mapping(NoisyTraining, values, source=path.name)
    assert config.digest == digest
    assert replace(config, norm_bound=5.0).digest != digest
    assert {record["config"] for record in records.read(path.parent / "records.jsonl")} == {digest}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("mlx",)}, "did you mean 'ml'"),
        ({"partition": "iid"}, "partition is 'iid'"),
        ({"num_active": 11}, "11 of 10 devices"),
        ({"methods": ("mmse_pb_fixed",)}, "needs candidates"),
        ({"fixed": ("0.5",)}, "is not 'theta beta'"),
        ({"num_rounds": 0}, "num_rounds is 0"),
        ({"fading": "inversion", "csi_error": 0.1}, "infinite variance"),
        ({"power_cap": 5.0}, "belong to channel inversion"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"num_test_examples": 0}, "num_test_examples is 0"),
        ({"norm_bound": 0.5}, "norm_bound is 0.5"),
    ],
    ids=str,
)
def test_impossible_configurations_are_refused(small: NoisyTraining, change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        replace(small, **change)  # type: ignore[arg-type]
