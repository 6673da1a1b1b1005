"""How a server estimates the sum of the updates from what it received."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.moments import WeightStatistics
from quietnn.records import Record
from quietnn.repairs.affine import AffineDenoiser, Temperatures, denoiser_for
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.repairs.temperatures.result import Tried
from quietnn.repairs.temperatures.searches import coarse_to_fine, search_layerwise
from quietnn.repairs.temperatures.steps import Scale, start_from
from quietnn.score import Score
from quietnn.weights import Weights

Memory = Mapping[str, Tensor]
"""What an estimator carries from round to round: plain tensors by name, saved with every checkpoint."""

Judge = Callable[[Weights], Score]
"""Scores a state dict, or an estimate of the sum by the network it leads to."""


@dataclass(frozen=True)
class ReceivedSum:
    """What a server holds when it estimates the sum of a round.

    Attributes:
        total: `r`, the noisy sum by tensor name.
        noise_variance: `sigma_z^2`.
        weights: the same tensors of the global network that the devices started from.
        num_devices: how many updates are in the sum.
        score: an estimate of the sum to the score of the network it leads to, on the server's validation examples.
        oracle: the same on test examples, for estimators that are labelled oracle and for nothing else.
        told: statistics of the clean sum by grouping and group, where the devices tell them.
    """

    total: Weights
    noise_variance: float
    weights: Weights
    num_devices: int
    score: Judge | None = None
    oracle: Judge | None = None
    told: Mapping[str, Mapping[str, WeightStatistics]] | None = None

    def grouped(self, groups: str) -> GroupedWeights:
        """The sum in its groups, with statistics told or estimated from what was received."""
        told = None if self.told is None else self.told[groups]
        return GroupedWeights.of(self.total, self.noise_variance, groups=groups, statistics=told)


@dataclass(frozen=True)
class Estimate:
    """An estimate of the sum, what to carry to the next round, and what to write down."""

    total: dict[str, Tensor]
    memory: Memory = field(default_factory=dict)
    notes: Record = field(default_factory=dict)


Estimator = Callable[[ReceivedSum, Memory], Estimate]
"""A rule for one round. It holds no state; what it remembers goes through the memory."""


@dataclass(frozen=True)
class Affine:
    """The family with the same temperatures in every round: `theta r + rho` (eq. 13).

    `Affine(ML)` takes the received sum; `Affine(MMSE)` is the MMSE estimate, per layer with `groups="layerwise"`: a
    closed form, no search. Where the noise is so strong that the temperatures lie past the pole, the round is taken as
    it came, and a note says so.
    """

    temperatures: Temperatures
    groups: str = "whole"

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Denoise each group with its own statistics."""
        by_group = received.grouped(self.groups)
        denoisers, infeasible = {}, 0
        for group in by_group.groups:
            try:
                denoisers[group] = denoiser_for(
                    self.temperatures, by_group.statistics[group], by_group.noise_variance, form=by_group.form
                )
            except InfeasibleTemperatures:
                denoisers[group], infeasible = AffineDenoiser(1.0, 0.0), infeasible + 1
        notes: Record = {"theta": _mean_theta(by_group, denoisers)}
        if infeasible:
            notes["infeasible"] = infeasible
        return Estimate(by_group.estimate(denoisers), notes=notes)


@dataclass(frozen=True)
class Tuned:
    """Temperatures searched anew in every round, by the score of the network they lead to (the paper's scheme).

    Without `beta` that is MMSE_p, with it MMSE_pb. Layerwise, a coordinate search follows the whole one. An oracle
    scores on test examples.
    """

    with_beta: bool = True
    groups: str = "whole"
    oracle: bool = False

    def __call__(self, received: ReceivedSum, memory: Memory) -> Estimate:
        """Search, then denoise with the winner."""
        judge = received.oracle if self.oracle else received.score
        if judge is None:
            raise InvalidConfig(
                "this scheme searches temperatures every round and needs a score to search by; give one"
            )
        whole = received.grouped("whole")
        scale = Scale(whole.statistics["whole"], received.noise_variance)
        best = coarse_to_fine(Tried(_scorer(judge, whole)), scale, with_beta=self.with_beta)
        num_scores, chosen = len(best.trials), best.temperatures
        notes: Record = {"lambda_prime": chosen.lambda_prime, "beta": chosen.beta, "theta": scale.theta(chosen)}
        if self.groups == "whole":
            return Estimate(whole.estimate(whole.denoisers(chosen)), notes=notes | {"num_scores": num_scores})
        layers = received.grouped(self.groups)
        found = search_layerwise(
            _scorer(judge, layers), layers, start_from(chosen, scale, layers), with_beta=self.with_beta
        )
        denoisers = layers.denoisers(found.temperatures)
        notes = {"theta": _mean_theta(layers, denoisers), "num_scores": num_scores + len(found.trials)}
        return Estimate(layers.estimate(denoisers), notes=notes)


def mean_over_weights(values: Mapping[str, float], groups: Mapping[str, tuple[str, ...]], tensors: Weights) -> float:
    """The mean multiplier over the weights, as one number for the records."""
    sizes = {group: sum(tensors[name].numel() for name in groups[group]) for group in values}
    return sum(values[group] * size for group, size in sizes.items()) / sum(sizes.values())


def _mean_theta(by_group: GroupedWeights, denoisers: Mapping[str, AffineDenoiser]) -> float:
    thetas = {group: denoiser.theta for group, denoiser in denoisers.items()}
    return mean_over_weights(thetas, by_group.groups, by_group.weights)


def _scorer(judge: Judge, by_group: GroupedWeights) -> Callable[[Temperatures | GroupTemperatures], Score]:
    return lambda temperatures: judge(by_group.estimate(by_group.denoisers(temperatures)))
