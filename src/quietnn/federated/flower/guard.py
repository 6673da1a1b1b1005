"""A grid that asks each node by itself: who answered is whom we asked, and one answer cannot spoil the others.

A reply bears its sender's name inside, where the sender wrote it, and Flower unpacks the replies of a round in one
go: bytes that cannot be unpacked end the server. Here every question has a number that the SuperLink gave it and
delivers to one node alone, so the answer to it is that node's, whatever it says of itself.
"""

import time
from collections.abc import Iterable
from typing import Any

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from quietnn.federated.flower.protocol import plain

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
_BAD_REPLY, _NOT_SENT = 1_000, 1_001


class GuardedGrid:
    """Any grid of Flower, with another `send_and_receive`; all else is the grid's own."""

    def __init__(self, grid: Grid) -> None:
        """Guard this grid; a guarded one is taken as it is."""
        self._grid: Grid = grid._grid if isinstance(grid, GuardedGrid) else grid

    def __getattr__(self, name: str) -> Any:
        """As the grid has it."""
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send each message and wait for the replies, at most `timeout` seconds.

        Of each that was answered in time there is one, whose sender is the node that was asked. What cannot be unpacked
        becomes an error with a reason.
        """
        replies: list[Message] = []
        waiting: dict[str, Message] = {}
        for question in messages:
            sent = list(self._grid.push_messages([question]))
            if sent and sent[0]:
                waiting[sent[0]] = question
            else:
                replies.append(Message(Error(_NOT_SENT, "the message to it could not be sent"), reply_to=question))
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while waiting:
            for message_id, question in list(waiting.items()):
                reply = self._pull(message_id, question)
                if reply is not None:
                    replies.append(reply)
                    del waiting[message_id]
            if not waiting or (deadline is not None and time.monotonic() >= deadline):
                break
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
        return replies

    def _pull(self, message_id: str, question: Message) -> Message | None:
        """The reply to one question, in an envelope of our own; None if there is none yet."""
        try:
            found = list(self._grid.pull_messages([message_id]))
            if not found:
                return None
            if found[0].has_error():
                return Message(Error(found[0].error.code, plain(found[0].error.reason)), reply_to=question)
            return Message(RecordDict(dict(found[0].content)), reply_to=question)
        except (httpx.HTTPError, OSError):  # the SuperLink is not there: no fault of the node
            raise
        except Exception as error:  # the node wrote these bytes: however unpacking fails, it is its own reply
            reason = f"its reply cannot be unpacked ({type(error).__name__}: {plain(error)})"
            return Message(Error(_BAD_REPLY, reason), reply_to=question)
