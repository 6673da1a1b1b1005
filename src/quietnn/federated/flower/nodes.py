"""Which Flower node is which device. Nodes have random names; devices have the number of their part of the data."""

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from cryptography.hazmat.primitives import serialization
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from quietnn.errors import InvalidConfig, MissingData
from quietnn.federated.flower.guard import GuardedGrid
from quietnn.federated.flower.protocol import DEVICE_QUERY, BadReply, device_in, plain

LOGGER = logging.getLogger("flwr")
_PAUSE_SECONDS = 0.5
_MOST_QUESTIONS = 3
_SECONDS_FOR_THE_SILENT = 20.0
"""How long a round waits for nodes that did not answer before."""


class Nodes:
    """Remembers the number of every node, and gives each number to one node alone.

    With the devices' public keys at hand (`read_keys`), a node's number is that of its key. Without them it is
    the `partition-id` that the node says, which Flower's simulation sets by itself and a SuperNode is started with.
    Who came first with a number keeps it: another node that says the same is refused as long as the first is there,
    and gives the number back when it returns. Two that come at once are both refused, since nobody knows who is right.
    """

    def __init__(self, devices: Collection[int], *, patience: float, keys: Mapping[bytes, int] | None = None) -> None:
        """Look for these devices, and wait at most `patience` seconds for all of them before the first round."""
        self._devices = frozenset(devices)
        self._patience = patience
        self._keys = keys
        self._said: dict[int, int] = {}
        self._num_questions: dict[int, int] = defaultdict(int)
        self._bound: dict[int, list[int]] = {}
        self._device_of: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        self._news: list[str] = []

    def device(self, node_id: int) -> int | None:
        """The number of a node that takes part."""
        return self._device_of.get(node_id)

    def news(self) -> list[str]:
        """Which nodes were refused since this was last asked, and why."""
        news, self._news = self._news, []
        return news

    def online(self, grid: Grid) -> dict[int, int]:
        """The node of every device that is there now."""
        here = list(grid.get_node_ids())
        unknown = [node for node in here if node not in self._said]
        if self._keys is None:
            self._ask(grid, [node for node in unknown if self._num_questions[node] < _MOST_QUESTIONS])
        elif unknown:
            self._look_up(grid, unknown)
        self._assign(here)
        return {device: node for node, device in self._device_of.items()}

    def wait_for(self, grid: Grid, num_devices: int) -> dict[int, int]:
        """The nodes that are there, once they are this many or patience has run out; there must be one."""
        deadline = time.monotonic() + self._patience
        for node, num in self._num_questions.items():  # a node that failed to answer is asked once more each round
            self._num_questions[node] = min(num, _MOST_QUESTIONS - 1)
        while len(nodes := self.online(grid)) < num_devices and time.monotonic() < deadline:
            LOGGER.info("%d of %d devices are there; waiting for the others", len(nodes), num_devices)
            time.sleep(_PAUSE_SECONDS)
        if not nodes:
            refused = f" ({'; '.join(self._news[:3])})" if self._news else ""
            raise MissingData(
                f"no device came within {self._patience:g} seconds{refused}; start the nodes, then run again"
            )
        return nodes

    def remembered(self) -> Tensor:
        """Which node has which number, in the order they came: rows of number and node."""
        rows = [(device, node) for device, nodes in sorted(self._bound.items()) for node in nodes]
        return torch.from_numpy(np.array(rows, dtype=np.uint64).reshape(-1, 2).view(np.int64))

    def remind(self, rows: Tensor) -> None:
        """Take up what `remembered` gave before the server was started again."""
        for device, node in rows.numpy().view(np.uint64).tolist():
            if node not in self._bound.setdefault(device, []):
                self._bound[device].append(node)

    def _ask(self, grid: Grid, node_ids: Iterable[int]) -> None:
        questions = [Message(RecordDict(), node, DEVICE_QUERY) for node in node_ids]
        if not questions:
            return
        asked = {question.metadata.dst_node_id for question in questions}
        first = any(self._num_questions[node] == 0 for node in asked)
        for node in asked:
            self._num_questions[node] += 1
        timeout = self._patience if first else min(self._patience, _SECONDS_FOR_THE_SILENT)
        for reply in GuardedGrid(grid).send_and_receive(questions, timeout=timeout):
            node = reply.metadata.src_node_id
            asked.discard(node)
            try:
                if reply.has_error():
                    raise BadReply(f"asked for its number, it failed: {plain(reply.error.reason)}")
                self._hear(node, device_in(reply))
            except BadReply as error:
                self._refuse(node, str(error))
        for node in asked:
            self._refuse(node, "asked for its number, it did not answer")

    def _look_up(self, grid: Grid, node_ids: Collection[int]) -> None:
        assert self._keys is not None
        for found in grid.get_nodes():
            if found.node_id in node_ids:
                number = self._keys.get(bytes(found.public_key).strip())
                if number is None:
                    self._refuse(found.node_id, "its key is none of those of the devices")
                else:
                    self._hear(found.node_id, number)

    def _hear(self, node: int, device: int) -> None:
        self._said[node] = device
        if device not in self._devices:
            self._refuse(node, f"it says it is device {device}; the devices are numbered 0 to {max(self._devices)}")

    def _assign(self, here: Collection[int]) -> None:
        """Give every number to the node that had it first, of those that are there and say it."""
        self._device_of = {}
        for device in sorted(self._devices):
            claimants = [node for node in here if self._said.get(node) == device]
            bound = self._bound.setdefault(device, [])
            holder = next((node for node in bound if node in claimants), None)
            if holder is None and len(claimants) == 1:
                holder = claimants[0]
                bound.append(holder)
            if holder is not None:
                self._device_of[holder] = device
                self._refused.pop(holder, None)
            for node in claimants:
                if node != holder:
                    whose = "several nodes at once say so" if holder is None else f"node {holder} is"
                    self._refuse(node, f"it says it is device {device}, but {whose}")

    def _refuse(self, node: int, reason: str) -> None:
        if self._refused.get(node) != reason:
            self._refused[node] = reason
            self._news.append(f"node {node}: {reason}")
            LOGGER.warning("node %d takes no part: %s", node, reason)


def read_keys(folder: Path) -> dict[bytes, int]:
    """The number of each public key in a folder: that at the end of its file's name, as in `device-3.pub`."""
    paths = sorted(folder.glob("*.pub")) if folder.is_dir() else []
    if not paths:
        raise MissingData(f"there is no public key in {folder}; put one for each device there, as device-0.pub")
    keys: dict[bytes, int] = {}
    for path in paths:
        digits = path.stem[len(path.stem.rstrip("0123456789")) :]
        if not digits or int(digits) in keys.values():
            raise InvalidConfig(f"the name of {path} does not end in a number of its own; call it device-3.pub")
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (ValueError, OSError) as error:
            raise InvalidConfig(f"{path} is no public key ({error}); make one with ssh-keygen -t ecdsa") from error
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        if pem.strip() in keys:
            raise InvalidConfig(f"{path} is the key of device {keys[pem.strip()]} too; give each device its own")
        keys[pem.strip()] = int(digits)
    return keys
