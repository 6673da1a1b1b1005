"""A federation round by round: broadcast, train, send over the air, aggregate.

`aggregate` is the server's half of a round as one pure function. Both ways to run a federation call it, the one in a
process and the one over a network, so both give the same global weights for the same seed, round and participants.
Nothing here has a state: everything random follows from the seed, the round's number and the devices' numbers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from quietnn.channels.randomness import generator_for
from quietnn.errors import InvalidConfig
from quietnn.federated.air import Air, superpose
from quietnn.federated.devices import DeviceData, Diverged, train_device
from quietnn.federated.estimators import Estimator, Judge, Memory, ReceivedSum
from quietnn.federated.screening import screen
from quietnn.federated.settings import FederationSettings
from quietnn.moments import WeightStatistics
from quietnn.records import Record
from quietnn.weights import GROUPINGS, Weights, noisy_names


@dataclass(frozen=True)
class Federation:
    """Everything that stays the same from round to round.

    `score` judges a state dict on validation examples, for estimators that search; `oracle` does on test examples, for
    estimators that are labelled so.
    """

    devices: Mapping[int, DeviceData]
    settings: FederationSettings
    air: Air
    estimator: Estimator
    seed: int = 0
    score: Judge | None = None
    oracle: Judge | None = None


@dataclass(frozen=True)
class ServerState:
    """Everything that changes from round to round: their number, the global state dict, what an estimator remembers."""

    num_rounds_done: int
    state: dict[str, Tensor]
    memory: Memory = field(default_factory=dict)

    @classmethod
    def initial(cls, model: nn.Module) -> "ServerState":
        """Before the first round, with the weights that the model has."""
        return cls(0, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()})


def participants(devices: Mapping[int, object], num_active: int, *, round_number: int, seed: int) -> tuple[int, ...]:
    """The devices that take part in a round, in ascending order; by seed and round alone."""
    names = sorted(devices)
    order = torch.randperm(len(names), generator=generator_for(seed, "participants", round_number))
    return tuple(sorted(names[place] for place in order[:num_active].tolist()))


def run_round(federation: Federation, model: nn.Module, server: ServerState) -> tuple[ServerState, Record]:
    """One round: the next server state, and the record of the round.

    The weights of `model`, a network to train in, are overwritten; those of the new state are in it afterwards. If the
    update of most devices is not finite, or what comes out is not, training has `Diverged`.
    """
    number, seed, settings = server.num_rounds_done, federation.seed, federation.settings
    updates: dict[int, Weights] = {}
    losses: dict[int, float] = {}
    diverged: dict[int, str] = {}
    for device in participants(federation.devices, settings.num_active, round_number=number, seed=seed):
        data = federation.devices[device]
        try:
            updates[device], losses[device] = train_device(
                model, server.state, data, settings, device=device, round_number=number, seed=seed
            )
        except Diverged as error:
            diverged[device] = str(error)
    noisy = noisy_names(model)
    kept, refused = screen(
        server.state, updates, noisy=noisy, round_number=number, norm_bound=settings.norm_bound, diverged=diverged
    )
    after, notes = aggregate(federation, server, kept, noisy=noisy)
    model.load_state_dict(after.state)
    heard = sorted(kept)
    record: Record = {"round": number + 1, "devices": heard, "loss": sum(losses[one] for one in heard) / len(heard)}
    if refused:
        record |= {"missing": sorted(refused), "reasons": [refused[device] for device in sorted(refused)]}
    return after, record | notes


@torch.no_grad()
def aggregate(
    federation: Federation, server: ServerState, updates: Mapping[int, Weights], *, noisy: Collection[str]
) -> tuple[ServerState, Record]:
    """The server after a round in which devices sent these updates, and flat values for the round's record.

        r = sum_m update_m + z          over the air, noisy parameters only
        s = estimate(r)                 any estimator of the sum
        w <- w + s / M                  noisy parameters
        v <- v + mean_m(update_m)       normalisation parameters and buffers, sent without noise

    An update is the change `w_m - w` of every tensor of the state dict, and has passed `screen`. What was passed in
    stays as it is. If the received sum or the new state is not finite, training has `Diverged`.

    >>> from quietnn.channels.awgn import AWGN
    >>> from quietnn.repairs.affine import ML
    >>> from quietnn.federated.estimators import Affine
    >>> nobody = DeviceData(torch.empty(0), torch.empty(0), torch.nn.Identity())
    >>> federation = Federation(
    ...     dict.fromkeys(range(4), nobody), FederationSettings(), Air(AWGN(noise_variance=0.0)), Affine(ML))
    >>> updates = {0: {"fc.weight": torch.tensor([1.0])}, 3: {"fc.weight": torch.tensor([3.0])}}
    >>> server = ServerState(0, {"fc.weight": torch.tensor([5.0])})
    >>> aggregate(federation, server, updates, noisy=["fc.weight"])[0].state
    {'fc.weight': tensor([7.])}
    """
    state, number = server.state, server.num_rounds_done
    if unknown := sorted(set(noisy) - set(state)):
        raise InvalidConfig(f"{unknown[0]!r} is to be noisy but is not in the state dict; take noisy_names(model)")
    num_devices = len(updates)
    clean = _averaged(state, _only(updates, [name for name in state if name not in set(noisy)]))
    sent = _only(updates, noisy)
    observation = federation.air.receive(sent, round_number=number, seed=federation.seed)
    check_finite(observation.received, f"the sum received in round {number + 1}")

    def resulting(total: Weights) -> dict[str, Tensor]:
        new = {name: state[name] + total[name] / num_devices for name in noisy}
        return {name: new[name] if name in new else clean[name] for name in state}

    def judged_by(judge: Judge | None) -> Judge | None:
        return None if judge is None else lambda total: judge(resulting(total))

    received = ReceivedSum(
        total=observation.received,
        noise_variance=observation.noise_variance,
        weights={name: state[name] for name in noisy},
        num_devices=num_devices,
        score=judged_by(federation.score),
        oracle=judged_by(federation.oracle),
        told=_statistics(superpose(sent)) if federation.settings.told else None,
    )
    estimate = federation.estimator(received, server.memory)
    after = resulting(estimate.total)
    check_finite(after, f"the global network after round {number + 1}")
    notes: Record = {"noise_variance": observation.noise_variance, "num_devices": num_devices}
    return ServerState(number + 1, after, estimate.memory), notes | estimate.notes


def check_finite(tensors: Weights, what: str) -> None:
    """Refuse a state dict with a number that is not finite: `Diverged`, with its name."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Diverged(f"{what} is not finite in {name}; try more WNR or a denoiser that shrinks")


def _only(updates: Mapping[int, Weights], names: Collection[str]) -> dict[int, dict[str, Tensor]]:
    return {device: {name: update[name] for name in names} for device, update in updates.items()}


def _averaged(state: Weights, updates: Mapping[int, Weights]) -> dict[str, Tensor]:
    """What was sent without noise: the state plus the mean update; of counters, whole numbers, rounded down."""
    return {
        name: state[name] + (total / len(updates) if total.is_floating_point() else total // len(updates))
        for name, total in superpose(updates).items()
    }


def _statistics(total: Weights) -> dict[str, dict[str, WeightStatistics]]:
    return {
        grouping: {
            group: WeightStatistics.from_clean(total[name] for name in members)
            for group, members in groups(tuple(total)).items()
        }
        for grouping, groups in GROUPINGS.items()
    }
