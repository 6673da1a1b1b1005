"""The server's half of a round as one pure function: updates in, new global weights out.

Both ways to run a federation call it, the one in a process and the one over a network, so both give the same global
weights for the same seed, round and participants:

    r = sum_m update_m + z          over the air, noisy parameters only
    s = estimate(r)                 any estimator of the sum
    w <- w + s / M                  noisy parameters
    v <- v + mean_m(update_m)       normalisation parameters and buffers, sent without noise

Nothing here has a state. What an estimator remembers comes in as `memory` and goes out as `Aggregation.memory`, both
plain tensors by name; everything random follows from `(seed, round_number)` and the devices' numbers.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.federated.air import Air, superpose
from quietnn.federated.devices import Diverged
from quietnn.federated.estimators import NO_MEMORY, Estimator, Memory, ReceivedSum
from quietnn.moments import WeightStatistics
from quietnn.records import Record
from quietnn.score import Score
from quietnn.weights import GROUPINGS, Weights

ScoreState = Callable[[Weights], Score]
"""Judges a whole state dict, for example by loading it into a network and testing that on a hundred examples."""


@dataclass(frozen=True)
class Aggregation:
    """What a round of aggregation gives.

    Attributes:
        state: the new global state dict.
        memory: what the estimator carries to the next round.
        notes: flat values for the record of the round.
    """

    state: dict[str, Tensor]
    memory: Memory
    notes: Record


@torch.no_grad()
def aggregate(
    state: Weights,
    updates: Mapping[int, Weights],
    *,
    noisy: Collection[str],
    air: Air,
    estimator: Estimator,
    round_number: int,
    seed: int,
    memory: Memory = NO_MEMORY,
    score: ScoreState | None = None,
    oracle: ScoreState | None = None,
    told: bool = False,
) -> Aggregation:
    """Superpose, add noise, estimate, divide by the number of devices, add to the global weights.

    Args:
        state: the global state dict that the devices started from.
        updates: by device number, the change `w_m - w` of every tensor of the state dict.
        noisy: names of the parameters that go over the air (`quietnn.weights.noisy_names(model)`).
        air: the channel.
        estimator: how the server estimates the sum.
        round_number: counted from 0.
        seed: of the run.
        memory: what the estimator returned in the round before; empty in the first one.
        score: judges a state dict on the server's validation examples, for estimators that search.
        oracle: the same on test examples, for estimators labelled oracle.
        told: whether the devices tell the server the statistics of the clean sum.

    Returns:
        The new state; the tensors passed in stay as they are.

    Raises:
        Diverged: if an update, the received sum or the new state is not finite.

    >>> from quietnn.channels.awgn import AWGN
    >>> from quietnn.repairs.affine import ML
    >>> from quietnn.federated.estimators import Affine
    >>> updates = {0: {"fc.weight": torch.tensor([1.0])}, 3: {"fc.weight": torch.tensor([3.0])}}
    >>> aggregate({"fc.weight": torch.tensor([5.0])}, updates, noisy=["fc.weight"], air=Air(AWGN(noise_variance=0.0)),
    ...           estimator=Affine(ML), round_number=0, seed=0).state
    {'fc.weight': tensor([7.])}
    """
    _check(state, updates, noisy, round_number)
    num_devices = len(updates)
    clean = _averaged(state, _only(updates, [name for name in state if name not in set(noisy)]))
    sent = _only(updates, noisy)
    observation = air.receive(sent, round_number=round_number, seed=seed)
    check_finite(observation.received, f"the sum received in round {round_number + 1}")

    def resulting(total: Weights) -> dict[str, Tensor]:
        new = {name: state[name] + total[name] / num_devices for name in noisy}
        return {name: new[name] if name in new else clean[name] for name in state}

    def judged_by(judge: ScoreState | None) -> ScoreState | None:
        return None if judge is None else lambda total: judge(resulting(total))

    received = ReceivedSum(
        total=observation.received,
        noise_variance=observation.noise_variance,
        weights={name: state[name] for name in noisy},
        num_devices=num_devices,
        round_number=round_number,
        score=judged_by(score),
        oracle=judged_by(oracle),
        told=_statistics(superpose(sent)) if told else None,
    )
    estimate = estimator(received, memory)
    state_after = resulting(estimate.total)
    check_finite(state_after, f"the global network after round {round_number + 1}")
    notes: Record = {"noise_variance": observation.noise_variance, "num_devices": num_devices}
    return Aggregation(state_after, estimate.memory, notes | estimate.notes)


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


def _check(state: Weights, updates: Mapping[int, Weights], noisy: Collection[str], round_number: int) -> None:
    if not updates:
        raise InvalidConfig(f"no device sent an update in round {round_number + 1}; a round needs at least one")
    unknown = sorted(set(noisy) - set(state))
    if unknown:
        raise InvalidConfig(f"{unknown[0]!r} is to be noisy but is not in the state dict; take noisy_names(model)")
    for device, update in sorted(updates.items()):
        missing = sorted(set(state) ^ set(update))
        if missing:
            raise InvalidConfig(f"the update of device {device} and the state dict differ in {missing[0]!r}")
        check_finite(update, f"the update of device {device} in round {round_number + 1}")


def check_finite(tensors: Weights, what: str) -> None:
    """Refuse a state dict or an update with a number that is not finite.

    Raises:
        Diverged: with its name.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Diverged(f"{what} is not finite in {name}; try more WNR or a denoiser that shrinks")
