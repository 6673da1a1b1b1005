"""The client app: what a device answers."""

import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import ConfigRecord, Context, Message, RecordDict

from quietnn.errors import InvalidConfig
from quietnn.federated.devices import train_device
from quietnn.federated.flower.arrays import to_arrays, to_state
from quietnn.federated.flower.client_app import device_number, train
from quietnn.federated.flower.task import Settings

pytestmark = pytest.mark.flower

RUN_CONFIG = {"task": "digits/mlp", "num-devices": 4, "num-active": 2, "num-epochs": 1, "batch-size": 50}


def test_a_node_without_a_number_says_how_to_get_one() -> None:
    with pytest.raises(InvalidConfig, match="--node-config"):
        device_number(Context(1, 2, {}, RecordDict(), {}))


def test_a_device_replies_with_the_weights_that_training_in_process_gives(local_grid: Callable) -> None:
    settings = Settings.from_run_config(RUN_CONFIG)
    task = settings.load_task()
    model = task.fresh_model(0)
    sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    content = RecordDict({"arrays": to_arrays(sent), "config": ConfigRecord({"server-round": 3})})
    node = next(node for node, device in local_grid(4, RUN_CONFIG).device_of.items() if device == 1)
    reply = train(Message(content, node, "train"), Context(1, node, {"partition-id": 1}, RecordDict(), RUN_CONFIG))
    data = settings.devices(task)[1]
    update, loss = train_device(model, sent, data, settings, device=1, round_number=2, seed=0)
    got = to_state(reply.content.array_records["arrays"])
    assert all(bool(((got[name] - sent[name]) == tensor).all()) for name, tensor in update.items())
    assert reply.content.metric_records["metrics"] == {"loss": loss, "num-examples": len(data)}
    with pytest.raises(InvalidConfig, match="numbered 0 to 3"):
        train(Message(content, node, "train"), Context(1, node, {"partition-id": 4}, RecordDict(), RUN_CONFIG))


def test_the_question_for_a_number_is_answered_without_torch() -> None:
    lines = "import sys, quietnn.federated.flower.client_app; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", lines], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"
