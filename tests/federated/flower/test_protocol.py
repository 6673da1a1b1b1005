"""What devices and server say to each other besides weights."""

from collections.abc import Callable

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from quietnn.federated.flower.protocol import (
    DEVICE_QUERY,
    BadReply,
    device_in,
    diverged_in,
    plain,
    say_device,
    say_diverged,
)

pytestmark = pytest.mark.flower


@pytest.fixture
def question(local_grid: Callable) -> Message:
    return Message(RecordDict(), next(iter(local_grid(1, {}).device_of)), DEVICE_QUERY)


def test_what_is_said_is_heard(question: Message) -> None:
    assert device_in(say_device(question, 7)) == 7
    assert diverged_in(say_diverged(question, "the loss became nan")) == "the loss became nan"
    assert diverged_in(say_device(question, 7)) is None


@pytest.mark.parametrize("said", [1.5, [1, 2]], ids=str)
def test_a_number_that_is_none_is_refused(said: object, question: Message) -> None:
    reply = Message(RecordDict({"device": MetricRecord({"device": said})}), reply_to=question)  # type: ignore[dict-item]
    with pytest.raises(BadReply, match="asked for its number, it said"):
        device_in(reply)


def test_what_a_stranger_says_is_one_short_printable_line(question: Message) -> None:
    said = "\x1b[2J\n" + "long " * 10_000
    assert plain(said).isprintable()
    assert len(plain(said)) < 310
    assert plain(b"bytes") == "5 values"
    reply = Message(RecordDict({"diverged": ConfigRecord({"reason": said})}), reply_to=question)
    assert diverged_in(reply) == plain(said)
