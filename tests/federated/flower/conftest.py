"""Flower without its processes, and with them: a grid that runs the client app here; commands that are always ended."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

FIRST_NODE = 7_000
"""Nodes have other names than devices; here they are even numbered backwards."""

APP = Path(__file__).parents[3] / "examples" / "flower_app"


@pytest.fixture
def local_grid() -> Callable[..., Any]:
    """A grid without processes. Its class is made here, so that this file can be read without flwr."""
    from flwr.app import Context, Error, Message, RecordDict
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    from quietnn.federated.flower.client_app import app

    class LocalGrid(Grid):
        """As many nodes as there are devices, all in this process.

        Devices in `lost` never reply to a round of training; those in `failing` reply with an error, those in
        `garbled` with bytes that cannot be unpacked. What `hostile` names for a device answers in its place, given
        the message, the context and what the device itself would reply.
        """

        def __init__(self, num_devices: int, run_config: dict[str, object]) -> None:
            self.run_config = run_config
            self.device_of = {FIRST_NODE - device: device for device in range(num_devices)}
            self.keys: dict[int, bytes] = {}
            self.lost: set[int] = set()
            self.failing: set[int] = set()
            self.garbled: set[int] = set()
            self.hostile: dict[int, Callable[[Message, Context, Message], Message]] = {}
            self.asked: list[tuple[str, int]] = []
            self.sent: dict[str, Message] = {}

        def set_run(self, run: object) -> None:
            raise NotImplementedError

        @property
        def run(self) -> object:
            raise NotImplementedError

        def create_message(self, *arguments: object, **options: object) -> Message:
            raise NotImplementedError

        def get_node_ids(self) -> Iterable[int]:
            return list(self.device_of)

        def get_nodes(self) -> Iterable[NodeInfo]:
            return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.device_of]

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            found = []
            for message in messages:
                message.metadata.__dict__["_message_id"] = f"message-{len(self.sent)}"
                self.sent[message.metadata.message_id] = message
                self.asked.append((message.metadata.message_type, self.device_of[message.metadata.dst_node_id]))
                found.append(message.metadata.message_id)
            return found

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return [reply for found in message_ids if (reply := self._reply(self.sent[found])) is not None]

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            return self.pull_messages(self.push_messages(messages))

        def _reply(self, message: Message) -> Message | None:
            node = message.metadata.dst_node_id
            device = self.device_of[node]
            if message.metadata.message_type == "train":
                if device in self.lost:
                    return None
                if device in self.failing:
                    return Message(Error(0, "out of memory"), reply_to=message)
                if device in self.garbled:
                    raise ValueError("Could not find the header")
            context = Context(1, node, {"partition-id": device}, RecordDict(), self.run_config)
            evaluated = message.metadata.message_type == "evaluate"  # which the app of quietnn does not do
            reply = Message(RecordDict(), reply_to=message) if evaluated else app(message, context)
            return self.hostile[device](message, context, reply) if device in self.hostile else reply

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # messages bear them
    return LocalGrid


class Commands:
    """Flower's commands on loopback, each with a log; whatever still runs at the end is killed with its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [_beside_python(command[0]), *command[1:]],
                env=self._environment(),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def run(self, name: str, *command: str, timeout: float = 120) -> str:
        """What a command that ends by itself says."""
        process = self.start(name, *command)
        assert process.wait(timeout) == 0, self.log(name)
        return self.log(name)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_until(self, what: str, condition: Callable[[], object], timeout: float = 180) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            logs = "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"{what}: not within {timeout} seconds\n{logs}"
            time.sleep(0.2)

    def kill_family(self, process: subprocess.Popen[bytes]) -> None:
        """`kill -9` a process and everything it started, in other sessions too."""
        for pid in [process.pid, *_descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)

    def connect(self, name: str, port: int, certificate: Path | None = None) -> None:
        """Tell `flwr` of a SuperLink."""
        secure = "insecure = true" if certificate is None else f'root-certificates = "{certificate}"'
        text = f'[superlink]\ndefault = "{name}"\n\n[superlink.{name}]\naddress = "127.0.0.1:{port}"\n{secure}\n'
        (self.home / "config.toml").write_text(text)

    def end(self) -> None:
        for process in self._started:
            self.kill_family(process)
        for pid in _with_environment(f"QUIETNN_TEST_MARKS={self.folder}"):  # orphans: their parents ended before them
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _environment(self) -> dict[str, str]:
        binaries = str(Path(sys.executable).parent)
        return os.environ | {
            "PATH": binaries + os.pathsep + os.environ["PATH"],
            "FLWR_HOME": str(self.home),
            "QUIETNN_TEST_MARKS": str(self.folder),
            "OMP_NUM_THREADS": "1",
            "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    running = Commands(tmp_path)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory where there is one: Flower's database gives up after five seconds behind a slow disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find


@pytest.fixture
def app_folder(tmp_path: Path) -> Path:
    """A copy of the example app."""
    return Path(shutil.copytree(APP, tmp_path / "app"))


def _beside_python(command: str) -> str:
    return str(Path(sys.executable).parent / command)


def _with_environment(entry: str) -> list[int]:
    """All processes that were started with this in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
    return found


def _descendants(pid: int) -> list[int]:
    """All processes that this one started, and those that they did."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found
