"""Which node is which device."""

from collections.abc import Callable

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Context, Message, RecordDict

from quietnn.errors import InvalidConfig, MissingData
from quietnn.federated.flower.client_app import device_number
from quietnn.federated.flower.nodes import Nodes

pytestmark = pytest.mark.flower


def test_devices_are_found_by_their_partition_id(local_grid: Callable) -> None:
    grid = local_grid(3, {})
    nodes = Nodes(range(3), patience=0.0)
    found = nodes.wait_for(grid, 3)
    assert {device: grid.device_of[node] for device, node in found.items()} == {0: 0, 1: 1, 2: 2}
    assert all(nodes.device(node) == device for device, node in found.items())
    assert nodes.device(12345) is None


def test_a_device_started_again_is_a_new_node_with_its_old_number(local_grid: Callable) -> None:
    grid = local_grid(2, {})
    nodes = Nodes(range(2), patience=0.0)
    old = nodes.online(grid)[1]
    grid.device_of[1] = 1  # the older node is still on Flower's list
    assert nodes.online(grid)[1] == 1
    assert nodes.device(old) is None
    num_questions = len(grid.asked)
    assert nodes.online(grid)[1] == 1
    assert len(grid.asked) == num_questions


def test_two_nodes_with_one_number_are_refused(local_grid: Callable) -> None:
    grid = local_grid(2, {})
    grid.device_of[1] = 1
    with pytest.raises(InvalidConfig, match="two nodes have partition-id=1"):
        Nodes(range(2), patience=0.0).online(grid)


def test_a_number_beyond_the_devices_is_refused(local_grid: Callable) -> None:
    with pytest.raises(InvalidConfig, match="numbered 0 to 1"):
        Nodes(range(2), patience=0.0).online(local_grid(3, {}))


def test_some_devices_are_enough_to_go_on_and_none_are_not(local_grid: Callable) -> None:
    assert len(Nodes(range(5), patience=0.0).wait_for(local_grid(2, {}), 5)) == 2
    with pytest.raises(MissingData, match="no device"):
        Nodes(range(5), patience=0.0).wait_for(local_grid(0, {}), 5)


def test_a_node_without_a_number_says_how_to_get_one() -> None:
    with pytest.raises(InvalidConfig, match="--node-config"):
        device_number(Context(1, 2, {}, RecordDict(), {}))


def test_messages_of_the_test_are_those_of_flower(local_grid: Callable) -> None:
    grid = local_grid(1, {})
    (reply,) = grid.send_and_receive([Message(RecordDict(), next(iter(grid.device_of)), "query.device")])
    assert reply.content.metric_records["device"]["device"] == 0
