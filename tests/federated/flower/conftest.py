"""Flower without its processes: a grid that runs the client app here, message by message."""

import os
from collections.abc import Callable, Iterable

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from quietnn.federated.flower.client_app import app as client_app

FIRST_NODE = 7_000
"""Nodes have other names than devices; here they are even numbered backwards."""


class LocalGrid(Grid):
    """As many nodes as there are devices, all in this process.

    Devices in `lost` never reply to a round of training; those in `failing` reply with an error.
    """

    def __init__(self, num_devices: int, run_config: dict[str, object], app: ClientApp = client_app) -> None:
        self.run_config = run_config
        self.app = app
        self.device_of = {FIRST_NODE - device: device for device in range(num_devices)}
        self.lost: set[int] = set()
        self.failing: set[int] = set()
        self.asked: list[tuple[str, int]] = []

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:
        raise NotImplementedError

    def create_message(self, *arguments: object, **options: object) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.device_of)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            device = self.device_of[node]
            self.asked.append((message.metadata.message_type, device))
            training = message.metadata.message_type == "train"
            if training and device in self.lost:
                continue
            if training and device in self.failing:
                replies.append(Message(Error(0, "out of memory"), reply_to=message))
                continue
            context = Context(1, node, {"partition-id": device}, RecordDict(), self.run_config)
            replies.append(self.app(message, context))
        return replies[::-1]


@pytest.fixture
def local_grid() -> Callable[..., LocalGrid]:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # messages bear them
    return LocalGrid
