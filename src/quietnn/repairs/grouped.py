"""Noisy weights in their groups, the noise on them, and the statistics a receiver can tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, check_is
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance, TensorNoise, mean_noise, noise_by_tensor, one_variance
from quietnn.observation import Observation
from quietnn.repairs.affine import AffineDenoiser, Temperatures, denoiser_for, weightwise_map
from quietnn.repairs.priors import priors_under, told
from quietnn.targets import with_weights
from quietnn.theory.family import Form
from quietnn.weights import Partition, Weights, check_weights, partition

GroupTemperatures = Mapping[str, Temperatures]
"""Temperatures by group name."""


@dataclass(frozen=True)
class GroupedWeights:
    """Noisy weights ready to be denoised, again and again if a search asks for it.

    Where noise differs, `noise_variance` is that of an average weight, `noise` is by tensor, each a number or one value
    a weight, and `priors` are by tensor, where they are not those of the group.
    """

    weights: Weights
    noise_variance: float
    groups: Partition
    statistics: Mapping[str, WeightStatistics]
    form: Form = Form.CENTRED
    noise: Mapping[str, TensorNoise] | None = None
    priors: Mapping[str, WeightStatistics] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        weights: Weights,
        noise_variance: NoiseVariance,
        *,
        groups: str | Partition = "whole",
        statistics: Mapping[str, WeightStatistics] | None = None,
        form: Form | str = Form.CENTRED,
    ) -> "GroupedWeights":
        """Check the weights, group them, and estimate what is not given from what was received."""
        form = Form(form)
        chosen = partition(tuple(weights), groups)
        noise = noise_by_tensor(noise_variance, weights, chosen)
        check_weights(weights)
        mean = one_variance(noise_variance) if noise is None else mean_noise(noise, weights)
        priors: Mapping[str, WeightStatistics] = {}
        if statistics is None and noise is not None:
            found = {name: told(tensor, noise[name]) for name, tensor in weights.items()}
            statistics, priors = priors_under(found, noise, chosen)
        elif statistics is None:
            statistics = {
                group: WeightStatistics.from_received((weights[name] for name in members), mean)
                for group, members in chosen.items()
            }
        missing = [group for group in chosen if group not in statistics]
        if missing:
            raise InvalidConfig(f"no statistics for group {missing[0]!r}; the groups are {', '.join(chosen)}")
        return cls(weights, mean, chosen, statistics, form, noise, priors)

    def group_noise(self, group: str) -> float:
        """The noise variance of an average weight of a group."""
        if self.noise is None:
            return self.noise_variance
        return mean_noise(self.noise, self.weights, self.groups[group])

    def prior(self, group: str, name: str) -> WeightStatistics:
        """`mu_w` and `sigma_w^2` of a tensor of a group."""
        return self.priors.get(name, self.statistics[group])

    def denoisers(self, temperatures: Temperatures | GroupTemperatures | None) -> dict[str, AffineDenoiser]:
        """The affine map of each group, for one pair of temperatures or one per group; none changes nothing."""
        if temperatures is None:
            return dict.fromkeys(self.groups, AffineDenoiser(1.0, 0.0))
        kinds = (Temperatures, Mapping)
        check_is(temperatures, kinds, "temperatures", "give temperatures=quietnn.Temperatures(0.5, 0.0), or by group")
        if isinstance(temperatures, Temperatures):
            temperatures = dict.fromkeys(self.groups, temperatures)
        wrong = set(temperatures) ^ set(self.groups)
        if wrong:
            raise InvalidConfig(f"temperatures and groups differ in {sorted(wrong)[0]!r}; give one pair for each group")
        return {group: self._denoiser(group, temperatures[group]) for group in self.groups}

    def _denoiser(self, group: str, temperatures: Temperatures) -> AffineDenoiser:
        try:
            denoiser = denoiser_for(temperatures, self.statistics[group], self.group_noise(group), form=self.form)
            if self.noise is None:
                return denoiser
            members = {
                name: weightwise_map(temperatures, self.prior(group, name), self.noise[name], form=self.form)
                for name in self.groups[group]
            }
            return replace(denoiser, members=members)
        except InfeasibleTemperatures as error:
            raise InfeasibleTemperatures(f"group {group!r}: {error}") from error

    def estimate(self, denoisers: Mapping[str, AffineDenoiser], out: Weights | None = None) -> dict[str, Tensor]:
        """The denoised weights of the groups that have a denoiser, written into the tensors of `out` if given."""
        out = {name: torch.empty_like(tensor) for name, tensor in self.weights.items()} if out is None else out
        return {
            name: denoiser.on(name)(self.weights[name], out[name])
            for group, denoiser in denoisers.items()
            for name in self.groups[group]
        }


def grouped(
    observation: Observation[Any, Any],
    groups: str | Partition = "whole",
    *,
    form: Form | str = Form.CENTRED,
) -> GroupedWeights:
    """The noisy weights of an observation in groups, with what the sender tells or the receiver can estimate.

    >>> grouped(Observation(torch.tensor([2.0, -2.0]), 1.0)).statistics["whole"].variance
    3.0
    """

    def make() -> GroupedWeights:
        told = observation.statistics if groups == "whole" else None
        return GroupedWeights.of(
            observation.weights, observation.known_noise, groups=groups, statistics=told, form=form
        )

    return observation.remember(("grouped", groups, Form(form)), make) if isinstance(groups, str) else make()


def denoised(
    observation: Observation[Any, Any],
    temperatures: Temperatures | GroupTemperatures,
    groups: str | Partition = "whole",
    *,
    form: Form | str = Form.CENTRED,
) -> Any:
    """A copy of what arrived under these temperatures.

    >>> denoised(Observation(torch.tensor([2.0, -2.0]), 1.0), Temperatures(0.0))     # sigma_w^2 = 4 - 1, theta = 3/4
    tensor([ 1.5000, -1.5000])
    """
    weights = grouped(observation, groups, form=form)
    return with_weights(observation.received, weights.estimate(weights.denoisers(temperatures)))
