"""A federation in one process, round by round: broadcast, train, send over the air, aggregate."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.federated.aggregate import ScoreState, aggregate
from quietnn.federated.air import Air
from quietnn.federated.devices import DeviceData, Diverged, LocalTraining, copy_state, train_device
from quietnn.federated.estimators import NO_MEMORY, Estimator, Memory
from quietnn.federated.screening import NORM_BOUND, screen
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
        norm_bound: the largest norm of an update, as a multiple of the median of the others (`screen`).
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
    norm_bound: float = NORM_BOUND

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
        Diverged: if the loss or the update of most devices is not finite, or what comes out is not.
    """
    number, seed = server.num_rounds_done, federation.seed
    active = participants(federation.devices, federation.num_active, round_number=number, seed=seed)
    updates: dict[int, Weights] = {}
    losses: dict[int, float] = {}
    diverged: dict[int, str] = {}
    for device in active:
        try:
            result = train_device(
                model,
                server.state,
                federation.devices[device],
                federation.training,
                device=device,
                round_number=number,
                seed=seed,
            )
        except Diverged as error:
            diverged[device] = str(error)
            continue
        updates[device], losses[device] = result.update, result.loss
    noisy = noisy_names(model)
    screened = screen(
        server.state,
        updates,
        noisy=noisy,
        round_number=number,
        norm_bound=federation.norm_bound,
        diverged=diverged,
    )
    aggregation = aggregate(
        server.state,
        screened.updates,
        noisy=noisy,
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
    heard = sorted(screened.updates)
    record: Record = {"round": number + 1, "devices": heard, "loss": sum(losses[one] for one in heard) / len(heard)}
    if screened.refused:
        missing = sorted(screened.refused)
        record |= {"missing": missing, "reasons": [screened.refused[device] for device in missing]}
    return ServerState(number + 1, aggregation.state, aggregation.memory), record | aggregation.notes
