"""A grid that asks each node by itself."""

import time
from collections.abc import Callable, Iterable

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict

from quietnn.federated.flower.arrays import to_arrays
from quietnn.federated.flower.guard import GuardedGrid
from quietnn.federated.flower.task import Settings

pytestmark = pytest.mark.flower

RUN_CONFIG = {"task": "digits/mlp", "num-devices": 4, "num-active": 4, "num-epochs": 1, "batch-size": 50}


def questions(grid: object) -> list[Message]:
    settings = Settings.from_run_config(RUN_CONFIG)
    arrays = to_arrays(settings.load_task().fresh_model(0).state_dict())
    content = {"arrays": arrays, "config": ConfigRecord({"server-round": 1})}
    return [Message(RecordDict(dict(content)), node, "train") for node in grid.device_of]  # type: ignore[attr-defined]


def test_one_bad_answer_spoils_no_other_and_silence_ends_with_time(local_grid: Callable) -> None:
    grid = local_grid(4, RUN_CONFIG)
    grid.garbled, grid.failing, grid.lost = {0}, {1}, {2}
    begun = time.monotonic()
    replies = GuardedGrid(grid).send_and_receive(questions(grid), timeout=0.3)
    assert time.monotonic() - begun < 60
    by_device = {grid.device_of[reply.metadata.src_node_id]: reply for reply in replies}
    assert set(by_device) == {0, 1, 3}
    assert "cannot be unpacked (ValueError" in by_device[0].error.reason
    assert by_device[1].error.reason == "out of memory"
    assert by_device[3].content.metric_records["metrics"]["num-examples"] > 0


def test_the_sender_is_the_node_that_was_asked(local_grid: Callable) -> None:
    grid = local_grid(2, RUN_CONFIG)

    def pretend(message: Message, context: Context, reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 12345
        return reply

    grid.hostile[1] = pretend
    replies = GuardedGrid(grid).send_and_receive(questions(grid), timeout=5)
    assert {reply.metadata.src_node_id for reply in replies} == set(grid.device_of)


def test_a_superlink_that_is_gone_is_no_fault_of_a_node(local_grid: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = local_grid(1, RUN_CONFIG)

    def gone(message_ids: Iterable[str]) -> Iterable[Message]:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(grid, "pull_messages", gone)
    with pytest.raises(httpx.ConnectError):
        GuardedGrid(grid).send_and_receive(questions(grid), timeout=5)


def test_all_else_is_the_grids_own_and_a_guarded_grid_is_guarded_once(local_grid: Callable) -> None:
    grid = local_grid(3, {})
    guarded = GuardedGrid(GuardedGrid(grid))  # type: ignore[arg-type]
    assert guarded._grid is grid
    assert list(guarded.get_node_ids()) == list(grid.get_node_ids())
