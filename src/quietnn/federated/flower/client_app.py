"""A device: trains the weights it is sent on its own examples, and replies with what became of them."""

from functools import lru_cache
from typing import TYPE_CHECKING

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quietnn.errors import InvalidConfig
from quietnn.federated.flower.protocol import DEVICE_QUERY, say_device, say_diverged

if TYPE_CHECKING:
    from quietnn.federated.devices import DeviceData
    from quietnn.federated.flower.task import Settings
    from quietnn.federated.tasks import FederatedTask

app = ClientApp()


@app.query(DEVICE_QUERY.partition(".")[2])
def device(message: Message, context: Context) -> Message:
    """Say which device this node is."""
    return say_device(message, device_number(context))


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round of local training. A loss that is not finite goes back as a record, not as a crash."""
    # torch takes seconds to import; the question above is answered without it.
    from quietnn.federated.devices import Diverged, train_device
    from quietnn.federated.flower.arrays import to_arrays, to_state
    from quietnn.federated.flower.task import Settings

    settings = Settings.from_run_config(context.run_config)
    task, devices = _loaded(settings)
    number = device_number(context)
    if number not in devices:
        raise InvalidConfig(f"partition-id is {number}, but the devices are numbered 0 to {len(devices) - 1}")
    server_round = message.content.config_records["config"]["server-round"]
    assert isinstance(server_round, int)
    model = task.fresh_model(settings.seed)
    try:
        _, loss = train_device(
            model,
            to_state(message.content.array_records["arrays"]),
            devices[number],
            settings,
            device=number,
            round_number=server_round - 1,
            seed=settings.seed,
        )
    except Diverged as error:
        return say_diverged(message, str(error))
    metrics = MetricRecord({"loss": loss, "num-examples": len(devices[number])})
    return Message(RecordDict({"arrays": to_arrays(model.state_dict()), "metrics": metrics}), reply_to=message)


def device_number(context: Context) -> int:
    """The number of this node: its `partition-id`, which says which part of the data it holds."""
    number = context.node_config.get("partition-id")
    if not isinstance(number, int):
        raise InvalidConfig("this node has no partition-id; start it with --node-config 'partition-id=0' or the like")
    return number


@lru_cache(maxsize=1)
def _loaded(settings: "Settings") -> "tuple[FederatedTask, dict[int, DeviceData]]":
    """The data, once a process: a simulation runs many devices in a few processes."""
    task = settings.load_task()
    return task, settings.devices(task)
