"""Which node is which device."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from quietnn.errors import InvalidConfig, MissingData
from quietnn.federated.flower.nodes import Nodes, read_keys

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
    grid.device_of[1] = 1
    del grid.device_of[old]
    assert nodes.online(grid)[1] == 1
    assert nodes.device(old) is None
    num_questions = len(grid.asked)
    assert nodes.online(grid)[1] == 1
    assert len(grid.asked) == num_questions


def test_a_late_node_cannot_retire_a_device(local_grid: Callable) -> None:
    grid = local_grid(2, {})
    nodes = Nodes(range(2), patience=0.0)
    first = nodes.online(grid)[0]
    grid.device_of[1] = 0
    assert nodes.online(grid)[0] == first
    assert nodes.device(1) is None
    (said,) = nodes.news()
    assert said == f"node 1: it says it is device 0, but node {first} is"
    assert nodes.news() == []


def test_a_device_that_was_away_gets_its_number_back_even_from_a_new_server(local_grid: Callable) -> None:
    grid = local_grid(2, {})
    nodes = Nodes(range(2), patience=0.0)
    first = nodes.online(grid)[0]
    del grid.device_of[first]
    grid.device_of[2**64 - 5] = 0
    assert nodes.online(grid)[0] == 2**64 - 5
    again = Nodes(range(2), patience=0.0)
    again.remind(nodes.remembered())
    grid.device_of[first] = 0
    assert nodes.online(grid)[0] == again.online(grid)[0] == first


def test_two_nodes_with_one_number_are_both_left_out(local_grid: Callable) -> None:
    grid = local_grid(2, {})
    grid.device_of[1] = 1
    nodes = Nodes(range(2), patience=0.0)
    assert set(nodes.online(grid)) == {0}
    assert sum("several nodes at once say so" in line for line in nodes.news()) == 2


def test_a_number_beyond_the_devices_is_left_out(local_grid: Callable) -> None:
    nodes = Nodes(range(2), patience=0.0)
    assert set(nodes.online(local_grid(3, {}))) == {0, 1}
    assert "it says it is device 2; the devices are numbered 0 to 1" in nodes.news()[0]


ANSWERS = {
    "nothing": RecordDict(),
    "a float": RecordDict({"device": MetricRecord({"device": 0.0})}),
    "a list": RecordDict({"device": MetricRecord({"device": [0, 1]})}),
    "not a number": RecordDict({"device": MetricRecord({"device": float("nan")})}),
    "a text": RecordDict({"device": ConfigRecord({"device": "0"})}),
    "a huge number": RecordDict({"device": MetricRecord({"device": 2**62})}),
    "a negative number": RecordDict({"device": MetricRecord({"device": -1})}),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_whatever_a_node_says_of_itself_the_others_go_on(answer: RecordDict, local_grid: Callable) -> None:
    grid = local_grid(3, {})
    grid.hostile[1] = lambda message, context, reply: Message(answer, reply_to=message)
    nodes = Nodes(range(3), patience=0.0)
    assert set(nodes.online(grid)) == {0, 2}
    assert nodes.news()


def test_a_reply_is_that_of_the_node_that_was_asked(local_grid: Callable) -> None:
    """The sender of a message stands in it, where the sender wrote it."""
    grid = local_grid(3, {})

    def pretend(message: Message, context: Context, reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = next(iter(grid.device_of))
        reply.content = RecordDict({"device": MetricRecord({"device": 2})})
        return reply

    grid.hostile[1] = pretend
    nodes = Nodes(range(3), patience=0.0)
    assert set(nodes.online(grid)) == {0}
    assert nodes.device(next(iter(grid.device_of))) == 0


def test_a_number_is_bound_to_a_key(local_grid: Callable, tmp_path: Path) -> None:
    grid = local_grid(3, {})
    for node, number in zip(grid.device_of, (2, 0), strict=False):
        key = ec.generate_private_key(ec.SECP384R1()).public_key()
        (tmp_path / f"device-{number}.pub").write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
        grid.keys[node] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    nodes = Nodes(range(3), patience=0.0, keys=read_keys(tmp_path))
    first, second, stranger = grid.device_of
    assert nodes.online(grid) == {0: second, 2: first}
    assert nodes.news() == [f"node {stranger}: its key is none of those of the devices"]
    assert grid.asked == []


def test_keys_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"device-0\.pub"):
        read_keys(tmp_path)
    (tmp_path / "device-1.pub").write_text("ssh-ed25519 nothing")
    with pytest.raises(InvalidConfig, match="no public key"):
        read_keys(tmp_path)
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    text = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "device-1.pub").write_bytes(text)
    (tmp_path / "other-2.pub").write_bytes(text)
    with pytest.raises(InvalidConfig, match="the key of device 1 too"):
        read_keys(tmp_path)
    (tmp_path / "other-2.pub").rename(tmp_path / "device.pub")
    with pytest.raises(InvalidConfig, match="does not end in a number"):
        read_keys(tmp_path)


def test_some_devices_are_enough_to_go_on_and_none_are_not(local_grid: Callable) -> None:
    assert len(Nodes(range(5), patience=0.0).wait_for(local_grid(2, {}), 5)) == 2
    with pytest.raises(MissingData, match="no device"):
        Nodes(range(5), patience=0.0).wait_for(local_grid(0, {}), 5)


def test_messages_of_the_test_are_those_of_flower(local_grid: Callable) -> None:
    grid = local_grid(1, {})
    (reply,) = grid.send_and_receive([Message(RecordDict(), next(iter(grid.device_of)), "query.device")])
    assert reply.content.metric_records["device"]["device"] == 0
