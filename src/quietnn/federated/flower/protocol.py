"""What devices and server say to each other besides weights."""

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

DEVICE_QUERY = "query.device"
"""The type of the message that asks a node which device it is."""

_DEVICE, _DIVERGED = "device", "diverged"


def say_device(message: Message, device: int) -> Message:
    """A node's answer to the question which device it is."""
    return Message(RecordDict({_DEVICE: MetricRecord({_DEVICE: device})}), reply_to=message)


def device_in(reply: Message) -> int:
    """The number in such an answer."""
    device = reply.content.metric_records[_DEVICE][_DEVICE]
    assert isinstance(device, int)
    return device


def say_diverged(message: Message, reason: str) -> Message:
    """A device's reply when its training left the finite numbers: in place of weights, why there are none."""
    return Message(RecordDict({_DIVERGED: ConfigRecord({"reason": reason})}), reply_to=message)


def diverged_in(reply: Message) -> str | None:
    """The reason in such a reply; None in any other."""
    said = reply.content.config_records.get(_DIVERGED)
    return None if said is None else str(said["reason"])
