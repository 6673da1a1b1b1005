"""Which Flower node is which device. Nodes have random names; devices have the number of their part of the data."""

import logging
import time
from collections.abc import Collection, Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from quietnn.errors import InvalidConfig, MissingData
from quietnn.federated.flower.protocol import DEVICE_QUERY, device_in

LOGGER = logging.getLogger("flwr")
_PAUSE_SECONDS = 0.5


class Nodes:
    """Remembers the number of every node it has asked, since asking costs a message and a process on the node.

    The number is the node's `partition-id`, which Flower's simulation sets by itself and a SuperNode is started with:
    `--node-config 'partition-id=3'`.
    """

    def __init__(self, devices: Collection[int], *, patience: float) -> None:
        """Look for these devices, and wait at most `patience` seconds for all of them before the first round."""
        self._devices = frozenset(devices)
        self._patience = patience
        self._device_of: dict[int, int] = {}
        self._retired: set[int] = set()

    def device(self, node_id: int) -> int | None:
        """The number of a node that was asked before."""
        return self._device_of.get(node_id)

    def online(self, grid: Grid) -> dict[int, int]:
        """The node of every device that is there now.

        Raises:
            InvalidConfig: if two nodes bear one number, or a node bears a number that no device has.
        """
        here = list(grid.get_node_ids())
        self._ask(grid, [node for node in here if node not in self._device_of and node not in self._retired])
        return {self._device_of[node]: node for node in here if node in self._device_of}

    def wait_for(self, grid: Grid, num_devices: int) -> dict[int, int]:
        """The nodes that are there, once they are this many or patience has run out.

        Raises:
            MissingData: if there is none.
        """
        deadline = time.monotonic() + self._patience
        while len(nodes := self.online(grid)) < num_devices and time.monotonic() < deadline:
            LOGGER.info("%d of %d devices are there; waiting for the others", len(nodes), num_devices)
            time.sleep(_PAUSE_SECONDS)
        if not nodes:
            raise MissingData(f"no device came within {self._patience:g} seconds; start the nodes, then run again")
        return nodes

    def _ask(self, grid: Grid, node_ids: Iterable[int]) -> None:
        questions = [Message(RecordDict(), node, DEVICE_QUERY) for node in node_ids]
        if not questions:
            return
        answers: dict[int, int] = {}
        for reply in grid.send_and_receive(questions, timeout=self._patience):
            if reply.has_error():
                LOGGER.warning("a node did not say which device it is: %s", reply.error.reason)
                continue
            device = device_in(reply)
            if device not in self._devices:
                raise InvalidConfig(
                    f"a node has partition-id={device}, but the devices are numbered 0 to {max(self._devices)}; "
                    "start it with another number or raise num-devices"
                )
            if device in answers:
                raise InvalidConfig(f"two nodes have partition-id={device}; give each node a number of its own")
            answers[device] = reply.metadata.src_node_id
        for device, node in answers.items():
            self._replace(device, node)

    def _replace(self, device: int, node: int) -> None:
        """A node that bears the number of an older one is that device, started again."""
        older = [other for other, number in self._device_of.items() if number == device]
        for other in older:
            LOGGER.warning("device %d is a new node now; its older one is not asked any more", device)
            self._retired.add(other)
            del self._device_of[other]
        self._device_of[node] = device
