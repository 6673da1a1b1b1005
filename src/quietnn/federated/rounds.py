"""A federation in one process, round by round: broadcast, train, send over the air, aggregate."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.federated.aggregate import ScoreState, aggregate
from quietnn.federated.air import Air
from quietnn.federated.devices import DeviceData, LocalTraining, copy_state, train_device
from quietnn.federated.estimators import NO_MEMORY, Estimator, Memory
from quietnn.federated.seeds import generator_for
from quietnn.records import Record
from quietnn.weights import Weights, noisy_names


@dataclass(frozen=True)
class Federation:
    """Everything that stays the same from round to round.

    Attributes:
        devices: the examples of each device, by its number.
        training: how a device trains.
        air: what the updates meet on their way.
        estimator: how the server estimates their sum.
        num_active: `M`, how many devices take part in a round.
        seed: of participants, local order, fading and noise.
        score: judges a state dict on validation examples, for estimators that search.
        oracle: the same on test examples.
        told: whether the devices tell the server the statistics of the clean sum.
    """

    devices: Mapping[int, DeviceData]
    training: LocalTraining
    air: Air
    estimator: Estimator
    num_active: int = 4
    seed: int = 0
    score: ScoreState | None = None
    oracle: ScoreState | None = None
    told: bool = False

    def __post_init__(self) -> None:
        """Refuse more participants than there are devices."""
        if not 1 <= self.num_active <= len(self.devices):
            raise InvalidConfig(f"{self.num_active} of {len(self.devices)} devices cannot be active; choose 1 to all")


@dataclass(frozen=True)
class ServerState:
    """Everything that changes from round to round.

    Attributes:
        num_rounds_done: how many rounds are behind; also the number of the next one.
        state: the global state dict.
        memory: what the estimator carries along.
    """

    num_rounds_done: int
    state: dict[str, Tensor]
    memory: Memory = field(default_factory=lambda: NO_MEMORY)

    @classmethod
    def initial(cls, model: nn.Module) -> "ServerState":
        """Before the first round, with the weights that the model has."""
        return cls(0, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()})


def participants(devices: Mapping[int, object], num_active: int, *, round_number: int, seed: int) -> tuple[int, ...]:
    """The devices that take part in a round, in ascending order; by seed and round alone.

    >>> participants(dict.fromkeys(range(20)), 4, round_number=0, seed=0) == participants(
    ...     dict.fromkeys(range(20)), 4, round_number=0, seed=0)
    True
    """
    names = sorted(devices)
    order = torch.randperm(len(names), generator=generator_for(seed, "participants", round_number))
    return tuple(sorted(names[place] for place in order[:num_active].tolist()))


def run_round(federation: Federation, model: nn.Module, server: ServerState) -> tuple[ServerState, Record]:
    """One round: the next server state, and the record of the round.

    Args:
        federation: what stays the same.
        model: a network to train in; its weights are overwritten, and those of the new state are in it afterwards.
        server: where the federation stands; it stays as it is.

    Raises:
        Diverged: if a loss or an update is not finite.
    """
    number, seed = server.num_rounds_done, federation.seed
    active = participants(federation.devices, federation.num_active, round_number=number, seed=seed)
    updates: dict[int, Weights] = {}
    losses = []
    for device in active:
        result = train_device(
            model,
            server.state,
            federation.devices[device],
            federation.training,
            device=device,
            round_number=number,
            seed=seed,
        )
        updates[device] = result.update
        losses.append(result.loss)
    aggregation = aggregate(
        server.state,
        updates,
        noisy=noisy_names(model),
        air=federation.air,
        estimator=federation.estimator,
        round_number=number,
        seed=seed,
        memory=server.memory,
        score=federation.score,
        oracle=federation.oracle,
        told=federation.told,
    )
    copy_state(model, aggregation.state)
    record: Record = {"round": number + 1, "devices": list(active), "loss": sum(losses) / len(losses)}
    return ServerState(number + 1, aggregation.state, aggregation.memory), record | aggregation.notes
