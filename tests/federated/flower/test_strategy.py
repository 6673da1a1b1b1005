"""The wrapped strategy and the in-process simulator are the same federation."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    Strategy,
)
from torch import Tensor

from quietnn.errors import InvalidConfig, MissingData
from quietnn.federated.devices import Diverged
from quietnn.federated.flower.arrays import to_arrays, to_state
from quietnn.federated.flower.strategy import OverTheAir
from quietnn.federated.flower.task import Settings, elsewhere
from quietnn.federated.rounds import ServerState, run_round
from quietnn.records import read
from quietnn.weights import noisy_names

pytestmark = pytest.mark.flower

NUM_ROUNDS = 2
RUN_CONFIG = {
    "num-devices": 20,
    "num-active": 3,
    "num-rounds": NUM_ROUNDS,
    "num-epochs": 1,
    "batch-size": 36,
    "learning-rate": 0.05,
    "wnr-db": -3.0,
    "num-tuning-examples": 20,
    "patience": 0.0,
}


def fedavg() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)


def in_process(settings: Settings, num_rounds: int = NUM_ROUNDS) -> tuple[dict[str, Tensor], list[dict[str, object]]]:
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    federation = settings.federation(task, settings.devices(task))
    server, found = ServerState.initial(model), []
    for _ in range(num_rounds):
        server, record = run_round(federation, model, server)
        found.append(record)
    return server.state, found


def wrapped(settings: Settings, strategy: Strategy, folder: Path | None = None) -> tuple[OverTheAir, ArrayRecord]:
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    federation = settings.federation(task, elsewhere(settings.num_devices))
    over_the_air = OverTheAir(
        strategy,
        federation,
        noisy=noisy_names(model),
        folder=folder,
        settings=settings.identity(),
        patience=settings.patience,
    )
    return over_the_air, to_arrays(model.state_dict())


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(
        float(
            (one[name].double() - other[name].double()).abs().max() / other[name].double().abs().max().clamp_min(1e-30)
        )
        for name in one
    )


@pytest.mark.parametrize("method", ["ml", "mmse_layerwise", "mmse_pb", "carried", "planned"])
def test_the_same_global_weights_as_in_process(method: str, local_grid: Callable) -> None:
    run_config = RUN_CONFIG | {"method": method}
    settings = Settings.from_run_config(run_config)
    expected, found = in_process(settings)
    strategy, initial = wrapped(settings, fedavg())
    result = strategy.start(local_grid(20, run_config), initial, num_rounds=NUM_ROUNDS)
    state = to_state(result.arrays)
    assert distance(state, expected) < 1e-6
    assert all(state[name].dtype == expected[name].dtype for name in state)
    for mine, other in zip(strategy.records, found, strict=True):
        assert mine["devices"] == other["devices"]
        assert mine["missing"] == []
        assert mine["noise_variance"] == pytest.approx(other["noise_variance"], rel=1e-6)
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-5)


FADING = {
    "inversion": {"fading": "inversion"},
    "imperfect knowledge": {"fading": "inversion", "csi-error": 0.1, "power-cap": 5.0},
    "power cap": {"fading": "inversion", "power-cap": 1.0},
    "phase": {"fading": "phase"},
    "drop-outs": {"dropout": 0.5},
    "all at once": {"fading": "inversion", "csi-error": 0.2, "power-cap": 2.0, "dropout": 0.5, "told": True},
}


@pytest.mark.parametrize("channel", FADING.values(), ids=FADING)
def test_a_fading_channel_gives_the_same_global_weights_as_in_process(
    channel: dict[str, object], local_grid: Callable
) -> None:
    run_config = RUN_CONFIG | {"method": "mmse_layerwise"} | channel
    settings = Settings.from_run_config(run_config)
    expected, found = in_process(settings)
    strategy, initial = wrapped(settings, fedavg())
    state = to_state(strategy.start(local_grid(20, run_config), initial, num_rounds=NUM_ROUNDS).arrays)
    assert distance(state, expected) < 1e-6
    for mine, other in zip(strategy.records, found, strict=True):
        assert mine["noise_variance"] == pytest.approx(other["noise_variance"], rel=1e-6)
    gaussian, _ = in_process(Settings.from_run_config(RUN_CONFIG | {"method": "mmse_layerwise"}))
    perfect = channel == FADING["inversion"]
    assert (distance(state, gaussian) < 1e-6) == perfect, "only perfect inversion undoes the fading"


def test_the_noise_is_really_there(local_grid: Callable) -> None:
    run_config = RUN_CONFIG | {"method": "ml"}
    settings = Settings.from_run_config(run_config)
    quiet, _ = in_process(Settings.from_run_config(run_config | {"wnr-db": float("inf")}), 1)
    strategy, initial = wrapped(settings, fedavg())
    state = to_state(strategy.start(local_grid(20, run_config), initial, num_rounds=1).arrays)
    assert distance({"w": state["fc.weight"]}, {"w": quiet["fc.weight"]}) > 1e-3
    assert torch.allclose(state["bn1.weight"], quiet["bn1.weight"], atol=1e-6)


def test_a_strategy_that_takes_medians_gets_the_estimate_too(local_grid: Callable) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    expected, _ = in_process(settings, 1)
    median = FedMedian(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy, initial = wrapped(settings, median)
    result = strategy.start(local_grid(20, RUN_CONFIG), initial, num_rounds=1)
    assert distance(to_state(result.arrays), expected) < 1e-6


def test_a_server_learning_rate_scales_the_estimated_update(local_grid: Callable) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    expected, _ = in_process(settings, 1)
    half = FedAvgM(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, server_learning_rate=0.5, server_momentum=0.0
    )
    strategy, initial = wrapped(settings, half)
    state = to_state(strategy.start(local_grid(20, RUN_CONFIG), initial, num_rounds=1).arrays)
    start = to_state(initial)
    middle = {name: (start[name].double() + expected[name].double()) / 2 for name in start if "num_batches" not in name}
    assert distance({name: state[name] for name in middle}, middle) < 1e-6


def test_each_node_is_asked_once_which_device_it_is(local_grid: Callable) -> None:
    grid = local_grid(20, RUN_CONFIG)
    strategy, initial = wrapped(Settings.from_run_config(RUN_CONFIG), fedavg())
    strategy.start(grid, initial, num_rounds=NUM_ROUNDS)
    assert sorted(device for kind, device in grid.asked if kind == "query.device") == list(range(20))
    assert sum(kind == "train" for kind, _ in grid.asked) == 3 * NUM_ROUNDS


def test_a_device_that_vanishes_is_left_out_and_named(local_grid: Callable) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    strategy, initial = wrapped(settings, fedavg())
    grid = local_grid(20, RUN_CONFIG)
    _, expected = in_process(settings, 1)
    chosen = expected[0]["devices"]
    assert isinstance(chosen, list)
    grid.failing, grid.lost = {chosen[0]}, {chosen[1]}
    strategy.start(grid, initial, num_rounds=1, timeout=0.5)
    (record,) = strategy.records
    assert record["missing"] == chosen[:2]
    assert record["devices"] == chosen[2:]
    assert record["num_devices"] == 1
    assert record["reasons"] == ["out of memory", "no answer"]


def test_a_round_that_nobody_answers_changes_nothing(local_grid: Callable) -> None:
    strategy, initial = wrapped(Settings.from_run_config(RUN_CONFIG), fedavg())
    grid = local_grid(20, RUN_CONFIG)
    grid.failing = set(range(20))
    result = strategy.start(grid, initial, num_rounds=1)
    assert distance(to_state(result.arrays), to_state(initial)) == 0
    assert strategy.records[0]["devices"] == []
    assert len(strategy.records[0]["missing"]) == 3


def test_no_device_at_all_is_an_error(local_grid: Callable) -> None:
    strategy, initial = wrapped(Settings.from_run_config(RUN_CONFIG), fedavg())
    with pytest.raises(MissingData, match="no device came"):
        strategy.start(local_grid(0, RUN_CONFIG), initial, num_rounds=1)


def test_diverging_training_ends_with_a_record(local_grid: Callable, tmp_path: Path) -> None:
    run_config = RUN_CONFIG | {"learning-rate": 1e30, "num-rounds": 5}
    strategy, initial = wrapped(Settings.from_run_config(run_config), fedavg(), tmp_path)
    with pytest.raises(Diverged):
        strategy.start(local_grid(20, run_config), initial, num_rounds=5)
    last = read(tmp_path / "rounds.jsonl")[-1]
    assert last["status"] == "diverged"
    assert "loss of device" in last["reason"] or "not finite" in last["reason"]


def test_a_strategy_that_samples_by_itself_is_refused(local_grid: Callable) -> None:
    part = FedAvg(fraction_train=0.2, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy, initial = wrapped(Settings.from_run_config(RUN_CONFIG), part)
    with pytest.raises(InvalidConfig, match="fraction_train"):
        strategy.start(local_grid(20, RUN_CONFIG), initial, num_rounds=1)


class Killed(BaseException):
    """As abrupt as a signal."""


def test_a_killed_server_goes_on_after_its_last_finished_round(local_grid: Callable, tmp_path: Path) -> None:
    run_config = RUN_CONFIG | {"num-rounds": 3, "method": "carried"}
    settings = Settings.from_run_config(run_config)
    whole, initial = wrapped(settings, fedavg())
    expected = to_state(whole.start(local_grid(20, run_config), initial, num_rounds=3).arrays)

    def kill(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 3:
            raise Killed
        return MetricRecord({"accuracy": 0.5})

    first, _ = wrapped(settings, fedavg(), tmp_path)
    with pytest.raises(Killed):
        first.start(local_grid(20, run_config), initial, num_rounds=3, evaluate_fn=kill)
    assert [record["round"] for record in read(tmp_path / "rounds.jsonl")] == [1, 2]
    again, _ = wrapped(settings, fedavg(), tmp_path)
    grid = local_grid(20, run_config)
    result = again.start(grid, initial, num_rounds=3)
    assert sum(kind == "train" for kind, _ in grid.asked) == 3  # the third round alone
    assert distance(to_state(result.arrays), expected) == 0
    assert [record["round"] for record in read(tmp_path / "rounds.jsonl")] == [1, 2, 3]
    assert [record["devices"] for record in again.records] == [record["devices"] for record in whole.records]
    assert list(result.train_metrics_clientapp) == [3]
    finished, _ = wrapped(settings, fedavg(), tmp_path)
    assert distance(to_state(finished.start(grid, initial, num_rounds=3).arrays), expected) == 0


def test_a_damaged_state_costs_a_round_and_is_said(local_grid: Callable, tmp_path: Path) -> None:
    run_config = RUN_CONFIG | {"num-rounds": 4, "method": "carried"}
    settings = Settings.from_run_config(run_config)
    whole, initial = wrapped(settings, fedavg())
    expected = to_state(whole.start(local_grid(20, run_config), initial, num_rounds=4).arrays)
    first, _ = wrapped(settings, fedavg(), tmp_path)
    first.start(local_grid(20, run_config), initial, num_rounds=3)
    content = (tmp_path / "server.safetensors").read_bytes()
    (tmp_path / "server.safetensors").write_bytes(content[: len(content) // 2])
    (tmp_path / "rounds.jsonl").write_text('{"round": 1\n')
    again, _ = wrapped(settings, fedavg(), tmp_path)
    grid = local_grid(20, run_config)
    state = to_state(again.start(grid, initial, num_rounds=4).arrays)
    assert sum(kind == "train" for kind, _ in grid.asked) == 2 * 3  # the third round again, and the fourth
    assert distance(state, expected) == 0
    found = read(tmp_path / "rounds.jsonl")
    assert [record["round"] for record in found] == [1, 2, 3, 4]
    assert ["fell_back" in record for record in found] == [False, False, True, False]
    assert found[2]["fell_back"].endswith("the run goes on after round 2, the last sound one")


def test_a_folder_of_another_run_is_refused(local_grid: Callable, tmp_path: Path) -> None:
    first, initial = wrapped(Settings.from_run_config(RUN_CONFIG), fedavg(), tmp_path)
    first.start(local_grid(20, RUN_CONFIG), initial, num_rounds=1)
    other, _ = wrapped(Settings.from_run_config(RUN_CONFIG | {"seed": 1}), fedavg(), tmp_path)
    with pytest.raises(InvalidConfig, match="seed"):
        other.start(local_grid(20, RUN_CONFIG), initial, num_rounds=2)


OPTIMISERS = {
    "momentum": lambda: FedAvgM(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, server_learning_rate=0.5, server_momentum=0.9
    ),
    "adam": lambda: FedAdam(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, eta=1e-3),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_server_optimiser_runs_on_top_and_outlives_the_server(
    name: str, local_grid: Callable, tmp_path: Path
) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    whole, initial = wrapped(settings, OPTIMISERS[name]())
    expected = to_state(whole.start(local_grid(20, RUN_CONFIG), initial, num_rounds=2).arrays)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in expected.values())
    for num_rounds in (1, 2):
        strategy, _ = wrapped(settings, OPTIMISERS[name](), tmp_path)
        state = to_state(strategy.start(local_grid(20, RUN_CONFIG), initial, num_rounds=num_rounds).arrays)
    assert distance(state, expected) == 0


def test_a_strategy_around_it_is_heard(local_grid: Callable) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    expected, _ = in_process(settings)
    inner, initial = wrapped(settings, fedavg())
    clipped = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1e6, 3)  # no noise, nothing clipped
    state = to_state(clipped.start(local_grid(20, RUN_CONFIG), initial, num_rounds=NUM_ROUNDS).arrays)
    assert distance(state, expected) < 1e-5
