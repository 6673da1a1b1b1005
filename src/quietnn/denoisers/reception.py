"""What a receiver knows: the noisy weights in their groups, the noise, and the statistics it can tell."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quietnn.denoisers.affine import AffineDenoiser, Temperatures, denoiser_for
from quietnn.errors import InfeasibleTemperatures, InvalidConfig
from quietnn.theory.family import Form, check_variance
from quietnn.weights import Partition, Weights, WeightStatistics, check_weights, partition

GroupTemperatures = Mapping[str, Temperatures]
"""Temperatures by group name."""


@dataclass(frozen=True)
class Reception:
    """Noisy weights ready to be denoised, again and again if a search asks for it.

    Attributes:
        weights: `r`, by tensor name.
        noise_variance: `sigma_z^2`, one for the whole model.
        groups: the tensor names of each group.
        statistics: `mu_w` and `sigma_w^2` of each group.
        form: how the prior mean enters (see `Form`).
    """

    weights: Weights
    noise_variance: float
    groups: Partition
    statistics: Mapping[str, WeightStatistics]
    form: Form = Form.CENTRED

    @classmethod
    def of(
        cls,
        weights: Weights,
        noise_variance: float,
        *,
        groups: str | Partition = "whole",
        statistics: Mapping[str, WeightStatistics] | None = None,
        form: Form | str = Form.CENTRED,
    ) -> "Reception":
        """Check the weights, group them, and estimate what is not given from what was received."""
        check_variance(noise_variance, "noise_variance")
        form = Form(form)
        chosen = partition(tuple(weights), groups)
        check_weights(weights)
        if statistics is None:
            statistics = {
                group: WeightStatistics.from_received((weights[name] for name in members), noise_variance)
                for group, members in chosen.items()
            }
        missing = [group for group in chosen if group not in statistics]
        if missing:
            raise InvalidConfig(f"no statistics for group {missing[0]!r}; the groups are {', '.join(chosen)}")
        return cls(weights, noise_variance, chosen, statistics, form)

    def denoisers(self, temperatures: Temperatures | GroupTemperatures) -> dict[str, AffineDenoiser]:
        """The affine map of each group, for one pair of temperatures or one pair per group.

        Raises:
            InfeasibleTemperatures: if a pair lies at or past the pole of its group.
        """
        if isinstance(temperatures, Temperatures):
            temperatures = dict.fromkeys(self.groups, temperatures)
        wrong = set(temperatures) ^ set(self.groups)
        if wrong:
            raise InvalidConfig(f"temperatures and groups differ in {sorted(wrong)[0]!r}; give one pair for each group")
        return {group: self._denoiser(group, temperatures[group]) for group in self.groups}

    def _denoiser(self, group: str, temperatures: Temperatures) -> AffineDenoiser:
        try:
            return denoiser_for(temperatures, self.statistics[group], self.noise_variance, form=self.form)
        except InfeasibleTemperatures as error:
            raise InfeasibleTemperatures(f"group {group!r}: {error}") from error

    def estimate(self, denoisers: Mapping[str, AffineDenoiser], out: Weights | None = None) -> dict[str, Tensor]:
        """The denoised weights, written into the tensors of `out` if given."""
        out = {name: torch.empty_like(tensor) for name, tensor in self.weights.items()} if out is None else out
        return {
            name: denoisers[group](self.weights[name], out=out[name])
            for group, members in self.groups.items()
            for name in members
        }
