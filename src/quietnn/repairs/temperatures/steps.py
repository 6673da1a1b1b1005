"""Steps that a network feels: the multiplier and the shift of a group, and their temperatures.

Even steps in `lambda'` are not even steps for the network: at a WNR of -16 dB all of `theta` between 0.1 and 10
lies within `lambda' = 1 +- 0.2`, at +10 dB the same stretch moves `theta` by two per cent. Searches that fit
themselves to the noise therefore move in

    theta                         and        shift = rho / theta = sigma_z^2 beta        (centred form, mu_w aside)

with the shift measured in noise standard deviations, and translate: `lambda' = 1 + eta (1 - 1/theta)`,
`beta = shift / sigma_z`.

*Natural units*, `1 / sqrt(n)` for `n` inputs of a unit, are steps of the shift that any network feels about equally
(docs/how-it-works/family.md). A step that suits 9 inputs is 22 times too long for 4,608 of them.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quietnn.moments import WeightStatistics
from quietnn.repairs.affine import ML, Temperatures, denoiser_for, mmse
from quietnn.repairs.grouped import GroupedWeights
from quietnn.theory.family import Region, lambda_prime_of, region


def fan_in(shape: Sequence[int]) -> int:
    """How many inputs a unit of a weight tensor has.

    >>> fan_in((512, 512, 3, 3)), fan_in((58, 1, 3, 3)), fan_in((10,))
    (4608, 9, 1)
    """
    return max(math.prod(shape[1:]), 1) if len(shape) > 1 else 1


@dataclass(frozen=True)
class Scale:
    """Translates between temperatures and `(theta, shift)` for one group.

    >>> scale = Scale(WeightStatistics(mean=0.0, variance=3.0, num_weights=10), noise_variance=1.0)
    >>> scale.temperatures(theta=1.0, shift=0.5)
    Temperatures(lambda_prime=1.0, beta=0.5)
    """

    statistics: WeightStatistics
    noise_variance: float

    @property
    def smallest_theta(self) -> float:
        """MMSE's multiplier `eta / (1 + eta)`, the least that a feasible `lambda'` can give."""
        return mmse(self.statistics, self.noise_variance).theta

    def temperatures(self, theta: float, shift: float) -> Temperatures:
        """The temperatures with this multiplier (at least MMSE's) and this shift in noise standard deviations.

        Without noise, and for a group whose signal is zero or lost in rounding, there is nothing to step in: ML.
        """
        if self.noise_variance == 0 or (self.statistics.variance == 0 and theta > 0):
            return ML
        beta = shift / self._noise_std
        if theta <= self.smallest_theta:
            return Temperatures(0.0, beta)
        variances = {"weight_variance": self.statistics.variance, "noise_variance": self.noise_variance}
        lambda_prime = max(lambda_prime_of(theta, **variances), 0.0)
        return ML if region(lambda_prime, **variances) is Region.INFEASIBLE else Temperatures(lambda_prime, beta)

    def theta(self, temperatures: Temperatures) -> float:
        """The multiplier that these temperatures give."""
        return denoiser_for(temperatures, self.statistics, self.noise_variance).theta

    def shift(self, temperatures: Temperatures) -> float:
        """The shift that these temperatures give, in noise standard deviations."""
        return temperatures.beta * self._noise_std

    @property
    def _noise_std(self) -> float:
        return math.sqrt(self.noise_variance)


def scales(by_group: GroupedWeights) -> dict[str, Scale]:
    """The scale of each group's steps."""
    return {group: Scale(by_group.statistics[group], by_group.group_noise(group)) for group in by_group.groups}


def start_from(temperatures: Temperatures, whole: Scale, by_group: GroupedWeights) -> dict[str, Temperatures]:
    """The temperatures with which every group does what one pair does to the whole model.

    Where a group cannot follow, because its own MMSE multiplier is larger, it starts at its MMSE.
    """
    theta, shift = whole.theta(temperatures), whole.shift(temperatures)
    return {group: scale.temperatures(theta, shift) for group, scale in scales(by_group).items()}


def natural_unit(by_group: GroupedWeights, members: Collection[str] | None = None) -> float:
    """The natural unit of a shift that all weights share, or all of some tensors, in noise standard deviations.

    It is `1 / sqrt(n)` with `n` the fan-in of an average weight: shared shifts are felt where most weights are.
    """
    weights = [by_group.weights[name] for name in (by_group.weights if members is None else members)]
    inputs = sum(weight.numel() * fan_in(weight.shape) for weight in weights)
    return math.sqrt(sum(weight.numel() for weight in weights) / inputs) if inputs else 1.0


def natural_units(by_group: GroupedWeights) -> dict[str, float]:
    """The natural unit of each group's shift, in noise standard deviations."""
    return {group: natural_unit(by_group, members) for group, members in by_group.groups.items()}
