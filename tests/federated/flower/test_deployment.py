"""A deployment on loopback behind a proxy: strangers, hostile nodes, a server and a device killed in mid-round."""

import datetime
import http.client
import ipaddress
import json
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from safetensors.torch import load_file
from torch import Tensor

from quietnn.federated.devices import train_device
from quietnn.federated.flower.task import Settings
from quietnn.federated.rounds import ServerState, aggregate
from quietnn.records import Record, read
from quietnn.weights import noisy_names

NGINX = shutil.which("nginx", path=os.environ["PATH"] + os.pathsep + "/usr/sbin")
PROXY = Path(__file__).parents[3] / "examples" / "superlink_proxy.conf"

pytestmark = [
    pytest.mark.flower,
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed, and strangers are kept out by it"),
]

NUM_DEVICES = 4
LOST = 3
RUN_CONFIG = {
    "num-devices": NUM_DEVICES,
    "num-active": NUM_DEVICES,
    "num-rounds": 3,
    "num-epochs": 1,
    "batch-size": 36,
    "learning-rate": 0.05,
    "wnr-db": 0.0,
    "method": '"carried"',
    "round-timeout": 400.0,
    "patience": 200.0,
}

HELD_CLIENT = '''
"""The client app, which says when a device starts a round, and waits as long as there is a file that holds it."""

import fcntl
import os
import time
from pathlib import Path

from flwr.clientapp import ClientApp

from quietnn.federated.flower import client_app

app = ClientApp()


@app.query("device")
def device(message, context):
    return client_app.device(message, context)


@app.train()
def train(message, context):
    place = f"{context.node_config['partition-id']}-{message.content['config']['server-round']}"
    marks = Path(os.environ["QUIETNN_TEST_MARKS"])
    (marks / f"started-{place}").touch()
    while (marks / f"hold-{place}").exists():
        time.sleep(0.1)
    with (marks / "turn").open("w") as turn:  # one after another, so that replies do not crowd Flower's database
        fcntl.flock(turn, fcntl.LOCK_EX)
        return client_app.train(message, context)
'''


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate authority and a server's certificate for 127.0.0.1: authority, certificate, key."""
    now = datetime.datetime.now(datetime.UTC)

    def build(name: str, key: Any, issuer: str, issuer_key: Any, *, authority: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        if not authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(issuer_key, hashes.SHA256())

    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = build("test authority", authority_key, "test authority", authority_key, authority=True)
    server = build("localhost", server_key, "test authority", authority_key, authority=False)
    paths = folder / "authority.pem", folder / "server.pem", folder / "server.key"
    pem = serialization.Encoding.PEM
    paths[0].write_bytes(authority.public_bytes(pem))
    paths[1].write_bytes(server.public_bytes(pem))
    paths[2].write_bytes(server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return paths


def make_key(folder: Path, name: str) -> Path:
    """A node's key pair as ssh-keygen writes it."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / name).write_bytes(private)
    (folder / f"{name}.pub").write_bytes(public)
    return folder / name


HOSTILE_CLIENT = '''
"""The client app; of device 2 a hostile one, each round in another way."""

from flwr.app import Array
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body

import hostile
from quietnn.federated.flower import client_app

app = ClientApp()


@app.query("device")
def device(message, context):
    return client_app.device(message, context)


@app.train()
def train(message, context):
    reply = client_app.train(message, context)
    kind = KINDS[message.content["config"]["server-round"] - 1]
    if context.node_config["partition-id"] != 2:
        return reply
    if kind == "cannot be unpacked":
        Array.deflate = lambda self: add_header_to_object_body(b"no JSON", self)
        return reply
    return hostile.HOSTILE[kind](message, reply)
'''


class Deployment:
    """A SuperLink that demands keys on loopback, nginx in front of it as in the example, and its nodes."""

    def __init__(
        self, commands: Any, free_port: Callable[[], int], app_folder: Path, database: Path, client: str = HELD_CLIENT
    ) -> None:
        self.commands, self.free_port, self.app, self.database = commands, free_port, app_folder, database
        self.folder: Path = commands.folder
        self.authority, self.certificate, self.key = make_certificates(self.folder)
        self.port, self.public_port = free_port(), free_port()
        commands.connect("secure", self.port, self.authority)
        (app_folder / "our_client.py").write_text(client)
        project = app_folder / "pyproject.toml"
        project.write_text(project.read_text().replace("quietnn.federated.flower.client_app:app", "our_client:app"))

    def start_proxy(self) -> None:
        """The example configuration with the ports and files of this test."""
        text = PROXY.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        text = text.replace("0.0.0.0:9000", f"127.0.0.1:{self.public_port}").replace(" ca.pem", f" {self.authority}")
        (self.folder / "proxy.conf").write_text(text)
        user = " user root;" if os.geteuid() == 0 else ""  # the folder of a test is its user's alone
        self.commands.start(
            "proxy", str(NGINX), *("-p", str(self.folder), "-c", "proxy.conf"), "-g", f"daemon off;{user}"
        )
        self.commands.wait_until("proxy", lambda: self.answer("GET", "/") == 404, timeout=20)

    def answer(self, method: str, path: str) -> int | None:
        """The status with which the proxy answers a request of nobody in particular."""
        context = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection("127.0.0.1", self.public_port, context=context, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=False)
            connection.putheader("Content-Length", "0")
            connection.putheader("Content-Type", "application/x-protobuf")
            connection.endheaders()
            return connection.getresponse().status
        except ConnectionRefusedError:
            return None
        finally:
            connection.close()

    def start_superlink(self, name: str) -> Any:
        process = self.commands.start(
            name,
            "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.database)),
            *("--ssl-ca-certfile", str(self.authority), "--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", str(self.key), "--enable-supernode-auth"),
            "--disable-runtime-dependency-installation",
        )
        self.commands.wait_until(name, lambda: "Uvicorn running" in self.commands.log(name))
        return process

    def start_node(self, name: str, device: int, key: Path | None, *options: str) -> Any:
        credentials = () if key is None else ("--auth-supernode-private-key", str(key))
        return self.commands.start(
            name,
            "flower-supernode",
            *("--root-certificates", str(self.authority), "--superlink", f"127.0.0.1:{self.public_port}"),
            *("--host", "127.0.0.1", "--port", str(self.free_port())),
            *("--node-config", f"partition-id={device}", *credentials, *options),
        )

    def register(self, key: Path) -> None:
        self.commands.run(f"register-{key.name}", "flwr", "supernode", "register", f"{key}.pub", "secure")

    def start_run(self, name: str, out: Path, **changed: object) -> None:
        values = RUN_CONFIG | {key.replace("_", "-"): value for key, value in changed.items()}
        config = " ".join(f"{key}={value}" for key, value in values.items())
        command = ("run", str(self.app), "secure", "--run-config", f'{config} folder="{out}"')
        self.commands.run(name, "flwr", *command)

    def wait_for_completion(self) -> None:
        """Until Flower says that the last run came to its end."""

        def completed() -> bool:
            (self.folder / "list.log").unlink(missing_ok=True)
            return "finished:completed" in self.commands.run("list", "flwr", "list", "secure", "--format", "json")

        self.commands.wait_until("the end of the run", completed)

    def hold(self, device: int, server_round: int) -> Path:
        path = self.folder / f"hold-{device}-{server_round}"
        path.touch()
        return path

    def wait_for_start(self, device: int, server_round: int) -> None:
        mark = self.folder / f"started-{device}-{server_round}"
        self.commands.wait_until(f"device {device} in round {server_round}", mark.exists, timeout=400)


def replay(found: list[Record], **changed: object) -> tuple[list[float], dict[str, Tensor]]:
    """The same rounds with the same devices in this process: losses, and the weights at the end."""
    settings = Settings.from_run_config(RUN_CONFIG | {"method": "carried", **changed})
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    federation = settings.federation(task, settings.devices(task))
    server, losses = ServerState.initial(model), []
    for number, record in enumerate(found):
        results = {
            device: train_device(
                model,
                server.state,
                federation.devices[device],
                federation.settings,
                device=device,
                round_number=number,
                seed=settings.seed,
            )
            for device in record["devices"]
        }
        losses.append(sum(loss for _, loss in results.values()) / len(results))
        updates = {device: update for device, (update, _) in results.items()}
        server, _ = aggregate(federation, server, updates, noisy=noisy_names(model))
    return losses, server.state


def test_a_deployment_with_keys_survives_a_killed_server_and_a_killed_device(
    commands: Any, free_port: Callable[[], int], app_folder: Path, fast_folder: Path, tmp_path: Path
) -> None:
    deployment = Deployment(commands, free_port, app_folder, fast_folder / "state.db")
    out = tmp_path / "out"
    superlink = deployment.start_superlink("superlink-1")
    deployment.start_proxy()
    nodes = {}
    for device in range(NUM_DEVICES):
        key = make_key(tmp_path, f"key-{device}")
        deployment.register(key)
        nodes[device] = deployment.start_node(f"node-{device}", device, key)
    stranger = deployment.start_node("stranger", 0, make_key(tmp_path, "stranger-key"))
    nobody = deployment.start_node("nobody", 0, None)

    # The server is killed while a device trains in round 2.
    held = deployment.hold(1, 2)
    deployment.start_run("run-1", out)
    deployment.wait_for_start(1, 2)
    for name, node in (("stranger", stranger), ("nobody", nobody)):
        told = commands.log(name)
        assert node.poll() not in (None, 0), told
        assert "Exit Code: 305" in told
        assert "Connection refused" not in told, "it reached the server, and was turned away there"
    commands.kill_family(superlink)
    (finished,) = read(out / "rounds.jsonl")
    assert finished["round"] == 1
    held.unlink()

    # A new one on the same database goes on with round 2; a device is killed while it trains in round 3.
    deployment.start_superlink("superlink-2")
    deployment.hold(LOST, 3)
    deployment.start_run("run-2", out)
    deployment.wait_for_start(LOST, 3)
    commands.kill_family(nodes[LOST])
    commands.wait_until("three rounds", lambda: len(read(out / "rounds.jsonl")) == 3, timeout=400)

    # An overloaded machine may lose another reply; the records then say which, and the weights follow from them.
    found = read(out / "rounds.jsonl")
    assert found[0] == finished
    assert [record["round"] for record in found] == [1, 2, 3]
    assert LOST in found[2]["missing"]
    for record in found:
        assert sorted(record["devices"] + record["missing"]) == list(range(NUM_DEVICES))
        assert record["num_devices"] == len(record["devices"]) > 0
    deployment.wait_for_completion()
    check_weights(out, found)


def check_weights(out: Path, found: list[Record], **changed: object) -> None:
    """What is kept is what this process makes of the same rounds with the same devices."""
    losses, state = replay(found, **changed)
    assert [record["loss"] for record in found] == pytest.approx(losses, rel=1e-5)
    stored = load_file(out / "server.safetensors")
    for name, tensor in state.items():
        difference = (stored[f"state/{name}"].double() - tensor.double()).abs().max()
        assert difference <= 1e-6 * tensor.double().abs().max().clamp_min(1e-30), name


KINDS = ("wrong shape", "NaN examples", "garbage bytes", "huge header", "cannot be unpacked")
REASONS = ("has the shape", "num-examples is nan", "no array", "has the shape", "cannot be unpacked")


def test_hostile_nodes_are_left_out_and_named(
    commands: Any, free_port: Callable[[], int], app_folder: Path, fast_folder: Path, tmp_path: Path
) -> None:
    """Device 2 replies with something else each round; a late node with a key of its own says it is device 0."""
    client = HOSTILE_CLIENT.replace("KINDS[", f"{KINDS!r}[")
    shutil.copy(Path(__file__).with_name("hostile.py"), app_folder)
    deployment = Deployment(commands, free_port, app_folder, fast_folder / "state.db", client)
    out = tmp_path / "out"
    deployment.start_superlink("superlink")
    deployment.start_proxy()
    keys = {device: make_key(tmp_path, f"key-{device}") for device in range(NUM_DEVICES + 1)}
    for key in keys.values():
        deployment.register(key)
    for device in range(NUM_DEVICES):
        deployment.start_node(f"node-{device}", device, keys[device])
    deployment.start_run("run", out, num_rounds=len(KINDS))
    commands.wait_until("a round", lambda: len(read(out / "rounds.jsonl")) >= 1, timeout=400)
    deployment.start_node("late", 0, keys[NUM_DEVICES])
    commands.wait_until("all rounds", lambda: len(read(out / "rounds.jsonl")) == len(KINDS), timeout=500)
    deployment.wait_for_completion()
    found = read(out / "rounds.jsonl")
    for record, reason in zip(found, REASONS, strict=True):
        assert 2 in record["missing"]
        assert reason in record["reasons"][record["missing"].index(2)]
        assert record["devices"]
    said = [line for record in found for line in record.get("refused_nodes", [])]
    assert any("it says it is device 0, but node" in line for line in said), said
    check_weights(out, found, **{"num-rounds": len(KINDS)})


OTHER_SPELLINGS = (
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/control/list-runs",
    "/v1/fleet/register-node",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "/v1/fleet/..%2fcontrol/start-run",
    "/v1/fleet/pull-messages/../../control/start-run",
    "/v1/control/start-run/../../fleet/pull-messages/",
    "/v1/control/start-run?/v1/fleet/pull-messages",
    "//v1/control/start-run",
    "/V1/control/start-run",
    "/v1/fleet/pull-messages%00/../../control/start-run",
    "/v1/runtime/pull-messages",
    "/docs",
    "/openapi.json",
    "/health",
)


def test_a_stranger_gets_no_further_than_the_proxy(
    commands: Any, free_port: Callable[[], int], app_folder: Path, fast_folder: Path, tmp_path: Path
) -> None:
    """Who holds address and certificate authority alone can neither register a key nor run an app."""
    deployment = Deployment(commands, free_port, app_folder, fast_folder / "state.db")
    deployment.start_superlink("superlink")
    deployment.start_proxy()
    commands.connect("secure", deployment.public_port, deployment.authority)
    key = make_key(tmp_path, "stranger-key")
    register = commands.start("register", "flwr", "supernode", "register", f"{key}.pub", "secure")
    run = commands.start("run", "flwr", "run", str(app_folder), "secure")
    assert register.wait(120) != 0, commands.log("register")
    assert run.wait(120) != 0, commands.log("run")
    for path in OTHER_SPELLINGS:
        for method in ("POST", "GET", "PUT"):
            assert deployment.answer(method, path) in (400, 404), (method, path)
    assert deployment.answer("GET", "/v1/fleet/pull-messages") == 404
    assert deployment.answer("POST", "/v1/fleet/pull-messages") not in (403, 404, 502), "a node gets through"
    commands.connect("secure", deployment.port, deployment.authority)
    assert json.loads(commands.run("runs", "flwr", "list", "secure", "--format", "json"))["runs"] == []
    nodes = json.loads(commands.run("nodes", "flwr", "supernode", "list", "secure", "--format", "json"))
    assert nodes["nodes"] == []
    seen = commands.log("superlink").split("Uvicorn running")[1]
    assert "start-run" not in seen
    assert "/v1/fleet/register-node" not in seen
    # On loopback, where whoever has a shell on the machine is, the same command does its work: the proxy it was.
    deployment.register(key)
