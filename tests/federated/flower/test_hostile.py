"""One device among four that means harm, for a whole run: the run ends as if that device were not there."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy
from safetensors.torch import load_file
from tests.federated.flower.hostile import HOSTILE
from torch import Tensor

from quietnn.federated.devices import Diverged
from quietnn.federated.flower.arrays import to_arrays, to_state
from quietnn.federated.flower.strategy import OverTheAir
from quietnn.federated.flower.task import Settings, elsewhere
from quietnn.records import read
from quietnn.weights import noisy_names

pytestmark = pytest.mark.flower

NUM_ROUNDS, BAD = 4, 2
RUN_CONFIG = {
    "task": "digits/mlp",
    "num-devices": 4,
    "num-active": 4,
    "partition": "even",
    "num-rounds": NUM_ROUNDS,
    "num-epochs": 2,
    "batch-size": 25,
    "learning-rate": 0.1,
    "wnr-db": 0.0,
    "patience": 0.0,
}


def federate(
    grid: object, folder: Path | None = None, strategy: Strategy | None = None, num_rounds: int = NUM_ROUNDS
) -> tuple[dict[str, Tensor], list[dict[str, object]]]:
    settings = Settings.from_run_config(RUN_CONFIG)
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    over_the_air = OverTheAir(
        strategy or FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        settings.federation(task, elsewhere(settings.num_devices)),
        noisy=noisy_names(model),
        folder=folder,
        settings=settings.identity(),
        patience=0.0,
    )
    result = over_the_air.start(grid, to_arrays(model.state_dict()), num_rounds=num_rounds, timeout=0.5)  # type: ignore[arg-type]
    return to_state(result.arrays), over_the_air.records


@cache
def accuracy_of(seed: int) -> Callable[[dict[str, Tensor]], float]:
    task = Settings.from_run_config(RUN_CONFIG).load_task()
    score = task.score_on(task.test)
    return lambda state: score(state).accuracy


@pytest.fixture(scope="module")
def without() -> dict[str, object]:
    """What the run comes to without the device, filled by the first test that needs it."""
    return {}


def expected(without: dict[str, object], local_grid: Callable) -> dict[str, Tensor]:
    if not without:
        grid = local_grid(4, RUN_CONFIG)
        grid.failing = {BAD}
        without["state"], _ = federate(grid)
    return without["state"]  # type: ignore[return-value]


def check_left_out(state: dict[str, Tensor], records: list[dict[str, object]], wanted: dict[str, Tensor]) -> None:
    assert len(records) == NUM_ROUNDS
    for record in records:
        assert record["missing"] == [BAD]
        assert record["devices"] == [0, 1, 3]
        (reason,) = record["reasons"]  # type: ignore[misc]
        assert 0 < len(reason) < 500
        assert reason.isprintable()
    assert all(bool((state[name] == tensor).all()) for name, tensor in wanted.items())
    accuracy = accuracy_of(0)
    assert accuracy(state) == accuracy(wanted) > 0.85


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_that_of_a_device_that_failed(kind: str, without: dict, local_grid: Callable) -> None:
    grid = local_grid(4, RUN_CONFIG)

    def answer(message: Message, context: Context, reply: Message) -> Message:
        return HOSTILE[kind](message, reply) if message.metadata.message_type == "train" else reply

    grid.hostile[BAD] = answer
    check_left_out(*federate(grid), expected(without, local_grid))


def test_a_reply_that_cannot_be_unpacked_spoils_no_other(without: dict, local_grid: Callable) -> None:
    grid = local_grid(4, RUN_CONFIG)
    grid.garbled = {BAD}
    state, records = federate(grid)
    check_left_out(state, records, expected(without, local_grid))
    assert "cannot be unpacked" in records[0]["reasons"][0]  # type: ignore[index]


def test_a_reply_in_the_name_of_another_is_ones_own(without: dict, local_grid: Callable) -> None:
    grid = local_grid(4, RUN_CONFIG)
    victim = next(iter(grid.device_of))

    def pretend(message: Message, context: Context, reply: Message) -> Message:
        if message.metadata.message_type != "train":
            return reply
        reply = HOSTILE["weights times -50"](message, reply)
        reply.metadata.__dict__["_src_node_id"] = victim
        return reply

    grid.hostile[BAD] = pretend
    check_left_out(*federate(grid), expected(without, local_grid))


def test_the_weights_of_the_average_are_ours(local_grid: Callable) -> None:
    """A device that claims a million examples counts as every other."""
    honest, _ = federate(local_grid(4, RUN_CONFIG), num_rounds=2)
    grid = local_grid(4, RUN_CONFIG)

    def boast(message: Message, context: Context, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            reply.content["metrics"]["num-examples"] = 10**6  # type: ignore[index]
            reply.content["metrics"]["round"] = -1  # type: ignore[index]
        return reply

    grid.hostile[BAD] = boast
    boasted, records = federate(grid, num_rounds=2)
    assert all(bool((honest[name] == tensor).all()) for name, tensor in boasted.items())
    assert [record["round"] for record in records] == [1, 2]


@pytest.mark.parametrize("kind", ["diverged", "NaN weights"])
def test_most_devices_decide_that_a_run_diverged(kind: str, local_grid: Callable, tmp_path: Path) -> None:
    grid = local_grid(4, RUN_CONFIG)
    for device in (0, 2):
        grid.hostile[device] = lambda message, context, reply: (
            HOSTILE[kind](message, reply) if message.metadata.message_type == "train" else reply
        )
    _, records = federate(grid, num_rounds=1)
    assert records[0]["devices"] == [1, 3]
    grid.hostile[3] = grid.hostile[0]
    with pytest.raises(Diverged, match="3 of 4 devices"):
        federate(grid, tmp_path, num_rounds=1)
    assert read(tmp_path / "rounds.jsonl")[-1]["status"] == "diverged"


class Careless(FedAvg):
    """A strategy whose own arithmetic leaves the finite numbers in the second round."""

    def aggregate_train(self, server_round: int, replies: object) -> object:  # type: ignore[override]
        arrays, metrics = super().aggregate_train(server_round, replies)  # type: ignore[arg-type]
        if server_round == 2 and arrays is not None:
            arrays = to_arrays({name: tensor * float("nan") for name, tensor in to_state(arrays).items()})
        return arrays, metrics


def test_nothing_that_is_not_finite_is_kept(local_grid: Callable, tmp_path: Path) -> None:
    careless = Careless(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    with pytest.raises(Diverged, match="what Careless made of round 2"):
        federate(local_grid(4, RUN_CONFIG), tmp_path, careless)
    stored = load_file(tmp_path / "server.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in stored.values())
    assert [record["round"] for record in read(tmp_path / "rounds.jsonl")] == [1, 2]
    assert read(tmp_path / "rounds.jsonl")[-1]["status"] == "diverged"


def test_hostile_evaluations_are_left_out(local_grid: Callable) -> None:
    """The client app does not evaluate: three devices do here, one of them with nonsense."""
    grid = local_grid(4, RUN_CONFIG)
    said = {0: {"accuracy": 0.5}, 1: {"accuracy": 0.7}, 2: {"accuracy": float("nan")}, 3: {"strange": 1.0}}

    def make(device: int) -> Callable[[Message, Context, Message], Message]:
        def answer(message: Message, context: Context, reply: Message) -> Message:
            if message.metadata.message_type == "evaluate":
                record = MetricRecord({"num-examples": 10, **said[device]})
                return Message(RecordDict({"metrics": record}), reply_to=message)
            return reply

        return answer

    grid.hostile = {device: make(device) for device in said}
    found = []

    class Watching(FedAvg):
        def aggregate_evaluate(self, server_round: int, replies: object) -> MetricRecord | None:  # type: ignore[override]
            metrics = super().aggregate_evaluate(server_round, replies)  # type: ignore[arg-type]
            found.append(metrics)
            return metrics

    federate(grid, strategy=Watching(min_train_nodes=1, min_available_nodes=1), num_rounds=1)
    assert found[0]["accuracy"] == pytest.approx(0.6)
