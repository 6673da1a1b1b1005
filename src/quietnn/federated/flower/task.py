"""What both apps of a run agree on: its settings, the task, who holds which examples."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from quietnn.errors import InvalidConfig, suggest, unknown_choice
from quietnn.federated.devices import DeviceData
from quietnn.federated.estimators import Tuned
from quietnn.federated.rounds import Federation
from quietnn.federated.schemes import SCHEMES
from quietnn.federated.settings import FederationSettings
from quietnn.federated.tasks import FederatedTask, load_federated_task
from quietnn.units import db_to_ratio

METHODS = {name: scheme for name, scheme in SCHEMES.items() if not getattr(scheme, "oracle", False)}
"""How the server estimates the sum, by the name in the run configuration: every scheme that sees no test examples."""


@dataclass(frozen=True, kw_only=True)
class Settings(FederationSettings):
    """A run, as both apps read it from Flower's run configuration (there with dashes: `num-rounds`).

    Attributes:
        image_size: side of the images of CIFAR-10; 0 leaves them as they are.
        data_dir: where data sets lie; empty for `$QUIETNN_DATA`.
        wnr_db: weights-to-noise ratio of the received sum; inf is a clean channel.
        method: a name of `METHODS`.
        folder: where the server keeps its rounds; empty keeps nothing.
        device_keys: a folder with the public key of each device, as `device-3.pub`; empty takes nodes at their word.
        round_timeout: seconds after which a round goes on without devices that have not answered.
        patience: seconds to wait for devices before the first round.
    """

    EXTENDABLE: ClassVar[tuple[str, ...]] = ("data_dir", "folder", "device_keys", "round_timeout", "patience")

    image_size: int = 0
    data_dir: str = ""
    num_rounds: int = 10
    batch_size: int = 50
    wnr_db: float = 0.0
    method: str = "mmse_layerwise"
    folder: str = ""
    device_keys: str = ""
    round_timeout: float = 3600.0
    patience: float = 120.0

    def __post_init__(self) -> None:
        super().__post_init__()
        db_to_ratio(self.wnr_db)
        if self.method not in METHODS:
            raise unknown_choice("method", self.method, METHODS)

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Any]) -> "Settings":
        """The settings in Flower's run configuration; keys that are not there keep their defaults.

        >>> Settings.from_run_config({"num-rounds": 3, "wnr-db": -5}).wnr_db
        -5.0
        """
        kinds = {field.name.replace("_", "-"): type(field.default) for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in run_config.items():
            if key not in kinds:
                raise InvalidConfig(f"unknown key {key!r} in the run configuration; {suggest(key, kinds)}")
            if kinds[key] is float and type(value) is int:
                value = float(value)
            if type(value) is not kinds[key]:
                raise InvalidConfig(f"{key} is {value!r} in the run configuration; give a {kinds[key].__name__}")
            values[key.replace("-", "_")] = value
        return cls(**values)

    def load_task(self) -> FederatedTask:
        """The network and the data."""
        data_dir = Path(self.data_dir) if self.data_dir else None
        return load_federated_task(self.task, image_size=self.image_size or None, data_dir=data_dir)

    def federation(self, task: FederatedTask, devices: Mapping[int, DeviceData]) -> Federation:
        """What stays the same from round to round; the in-process simulator takes the same object."""
        estimator = METHODS[self.method]
        validation = task.validation(self.num_tuning_examples, seed=self.seed)
        score = task.score_on(validation) if isinstance(estimator, Tuned) else None
        return Federation(devices, self, self.air(self.wnr_db), estimator, self.seed, score)


def elsewhere(num_devices: int) -> dict[int, DeviceData]:
    """Devices whose examples are not here: all that a server may know of them."""
    nothing = DeviceData(torch.empty(0), torch.empty(0, dtype=torch.long), lambda inputs: inputs)
    return dict.fromkeys(range(num_devices), nothing)
