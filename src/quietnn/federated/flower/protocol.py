"""What devices and server say to each other besides weights."""

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from quietnn.errors import QuietnnError

DEVICE_QUERY = "query.device"
"""The type of the message that asks a node which device it is."""

_DEVICE, _DIVERGED = "device", "diverged"
_REASON_LENGTH = 300


class BadReply(QuietnnError):
    """A reply that is not used; it counts as that of a device that failed."""


def plain(said: object) -> str:
    r"""What a stranger said, as one short line without control characters, for logs and records.

    >>> plain("no\x1b[2J memory\n" + "left " * 2)
    'no?[2J memory left left'
    """
    text = f"{len(said)} values" if isinstance(said, list | bytes) else str(said)[: 2 * _REASON_LENGTH]
    text = "".join(character if character.isprintable() else " " if character.isspace() else "?" for character in text)
    text = " ".join(text.split())
    return text if len(text) <= _REASON_LENGTH else text[:_REASON_LENGTH] + "..."


def say_device(message: Message, device: int) -> Message:
    """A node's answer to the question which device it is."""
    return Message(RecordDict({_DEVICE: MetricRecord({_DEVICE: device})}), reply_to=message)


def device_in(reply: Message) -> int:
    """The number in such an answer; without one it is a `BadReply`."""
    said = reply.content.metric_records.get(_DEVICE)
    device = None if said is None else said.get(_DEVICE)
    if type(device) is not int:
        raise BadReply(f"asked for its number, it said {plain(device)}")
    return device


def say_diverged(message: Message, reason: str) -> Message:
    """A device's reply when its training left the finite numbers: in place of weights, why there are none."""
    return Message(RecordDict({_DIVERGED: ConfigRecord({"reason": reason})}), reply_to=message)


def diverged_in(reply: Message) -> str | None:
    """The reason in such a reply; None in any other."""
    said = reply.content.config_records.get(_DIVERGED)
    return None if said is None else plain(said.get("reason", "diverged, without a reason"))
