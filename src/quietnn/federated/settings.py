"""What a run of noisy training is, whoever runs it: one process, or Flower."""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from quietnn.channels.awgn import AWGN, Power
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.federated.air import Air, ChannelInversion, Dropout, Gains, PhaseAlignment
from quietnn.federated.devices import DeviceData
from quietnn.federated.partition import PARTITIONS, make_parts
from quietnn.federated.screening import NORM_BOUND
from quietnn.federated.tasks import FEDERATED_TASKS, FederatedTask
from quietnn.tasks.registry import is_own

FADINGS = ("none", "inversion", "phase")


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """The settings that every run of noisy training has. A configuration adds its own to them.

    They are flat, as the keys of a TOML file and of Flower's run configuration are. The defaults are the authors'.

    Attributes:
        task: `digits`, `digits/mlp`, or `cifar10/` and a network.
        seed: of partition, initial weights, participants, local order, fading and noise.
        num_devices: how many devices share the examples.
        num_active: `M`, how many of them take part in a round.
        partition: `"sharded"` (the paper's), `"even"` or `"dirichlet"`.
        concentration: of the Dirichlet partition.
        num_rounds: length of a run.
        num_epochs: local epochs in a round.
        batch_size: examples in a local step.
        learning_rate: of local training in the first round; it follows half a cosine over the rounds.
        momentum: of local training.
        weight_decay: of local training.
        crop_padding: largest shift of a random crop in local training.
        flips: whether local training mirrors half of the images.
        num_tuning_examples: `kappa`, for the schemes that search in every round.
        power: whether the WNR is against the sum's `"variance"` or `"second-moment"`.
        told: whether the devices tell the server the statistics of the clean sum.
        fading: `"none"`, `"inversion"` (with `csi_error`, `power_cap`), or `"phase"`: aligned but not inverted.
        csi_error: variance of the error of a device's channel estimate.
        power_cap: largest power of channel inversion; 0 is no cap.
        dropout: probability that a device vanishes in the middle of its transmission.
        norm_bound: an update is left out if its norm is above this multiple of the median of the others; inf for none.
    """

    EXTENDABLE: ClassVar[tuple[str, ...]]
    """The fields of a configuration that may change between two sittings of one run."""

    task: str = "digits"
    seed: int = 0
    num_devices: int = 20
    num_active: int = 4
    partition: str = "sharded"
    concentration: float = 0.5
    num_rounds: int = 100
    num_epochs: int = 5
    batch_size: int = 1024
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    crop_padding: int = 0
    flips: bool = False
    num_tuning_examples: int = 100
    power: str = Power.VARIANCE.value
    told: bool = False
    fading: str = "none"
    csi_error: float = 0.0
    power_cap: float = 0.0
    dropout: float = 0.0
    norm_bound: float = NORM_BOUND

    def __post_init__(self) -> None:
        for name, choices in (("task", FEDERATED_TASKS), ("partition", PARTITIONS), ("fading", FADINGS)):
            if getattr(self, name) not in choices and not (name == "task" and is_own(self.task)):
                raise unknown_choice(name, getattr(self, name), choices)
        if not 1 <= self.num_active <= self.num_devices:
            raise InvalidConfig(f"{self.num_active} of {self.num_devices} devices cannot be active; choose 1 to all")
        if not self.norm_bound >= 1:
            raise InvalidConfig(f"norm_bound is {self.norm_bound}; it must be 1 or more, or inf for no limit")
        if self.fading != "inversion" and (self.csi_error or self.power_cap):
            raise InvalidConfig(
                f"csi_error and power_cap belong to channel inversion, but fading is {self.fading!r}; "
                "set fading to 'inversion', or leave them out"
            )
        for name in ("num_rounds", "num_epochs", "batch_size", "learning_rate", "num_tuning_examples"):
            if not getattr(self, name) > 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("momentum", "weight_decay", "crop_padding"):
            if not getattr(self, name) >= 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be 0 or more")
        self.air(0.0)

    def identity(self) -> dict[str, Any]:
        """What decides the outcome of a run: a checkpoint or a record made with another one is refused."""
        values = {key: value for key, value in asdict(self).items() if key not in self.EXTENDABLE}
        if self.norm_bound == NORM_BOUND:
            del values["norm_bound"]  # as in runs from before there was one
        return values

    def learning_rate_at(self, round_number: int) -> float:
        """The learning rate of a round: `lr (1 + cos(pi t / T)) / 2`, the rounds counted from 0.

        >>> settings = FederationSettings(num_rounds=4, learning_rate=0.1)
        >>> [round(settings.learning_rate_at(t), 4) for t in range(4)]
        [0.1, 0.0854, 0.05, 0.0146]
        """
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * round_number / self.num_rounds))

    def air(self, wnr_db: float) -> Air:
        """What the updates meet at a WNR; without noise, the channel is perfect altogether."""
        gains: list[Gains] = []
        if wnr_db < math.inf:
            if self.fading == "inversion":
                gains.append(ChannelInversion(self.csi_error, self.power_cap or math.inf))
            if self.fading == "phase":
                gains.append(PhaseAlignment())
            if self.dropout:
                gains.append(Dropout(self.dropout))
        return Air(AWGN(wnr_db=wnr_db, power=Power(self.power)), tuple(gains))

    def devices(self, task: FederatedTask, *, seed: int | None = None) -> dict[int, DeviceData]:
        """The examples of every device, by its number; with another seed than the run's own where one is given."""
        seed = self.seed if seed is None else seed
        parts = make_parts(self.partition, task.labels, self.num_devices, seed=seed, concentration=self.concentration)
        return task.devices(parts)
