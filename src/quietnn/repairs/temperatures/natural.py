"""A whole-model search in natural units: a step that any network feels about equally, whatever its fan-in.

One shift `s sigma_z` on all `n` inputs of a unit moves its output by `s sigma_z n mean(x)`; the noise moves it by
`sigma_z sqrt(n) rms(x)`. The two compare at `s = 1 / sqrt(n)`. A step that suits 9 inputs is 22 times too long for
4,608 of them, and a search with that step finds "no shift" where a short one is best.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from quietnn.errors import InvalidConfig
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.grouped import GroupedWeights
from quietnn.repairs.temperatures.gradient import GradientSettings
from quietnn.repairs.temperatures.grid import try_each
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.steps import Scale, fan_in
from quietnn.score import Score

_SQUARE = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


@dataclass(frozen=True)
class NaturalSettings:
    """How the bracket moves and shrinks.

    Attributes:
        theta_step: first step of `log theta`.
        shift_step: first step of the shift, in natural units.
        num_halvings: how often both steps are halved.
        max_moves: squares at one size before the steps are halved anyway.
    """

    theta_step: float = 0.2
    shift_step: float = 1.0
    num_halvings: int = 2
    max_moves: int = 4

    def __post_init__(self) -> None:
        """Refuse steps that lead nowhere."""
        for name in ("theta_step", "shift_step"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be positive, the default suits most")
        if self.num_halvings < 0 or self.max_moves < 1:
            raise InvalidConfig(
                f"num_halvings is {self.num_halvings} and max_moves {self.max_moves}; give at least 0 and 1"
            )


DEFAULT = NaturalSettings()

LAYERWISE = GradientSettings(num_steps=120, step_size=0.15, held_out=0.0, judge_every=10)
"""Steps enough for the layers: 40 smaller ones stop half-way. Two numbers a layer are few against a hundred examples,
so none are held out: ResNet20 at 4 dB, two development draws, 100 such steps, training images that were not tuned on:
54.2 % and 60.8 %; with a fifth held out 51.0 % and 59.4 %; as received 31.2 % and 30.2 %."""


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


def search_natural(
    score: Callable[[Temperatures], Score],
    scale: Scale,
    unit: float,
    *,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.ACCURACY,
    settings: NaturalSettings = DEFAULT,
) -> TuningResult[Temperatures]:
    """ML, MMSE and multipliers between them, then squares of points that follow the best one and shrink around it.

    A square whose best point lies on its border is moved there at the same size; one whose best point is its centre has
    the optimum between its points, and the steps are halved. Each point is scored once.

    Args:
        score: judges a pair of temperatures; it may raise `InfeasibleTemperatures`.
        scale: the group the temperatures are for.
        unit: the natural unit of its shift in noise standard deviations, see `natural_unit`.
        with_beta: whether to search `beta` too (MMSE_pb) or leave it at zero (MMSE_p).
        criterion: what makes a score better.
        settings: how the bracket moves.
    """
    trials: dict[Temperatures, Trial[Temperatures]] = {}

    def best_with(points: Sequence[Temperatures]) -> Temperatures:
        new = [point for point in dict.fromkeys(points) if point not in trials]
        trials.update((trial.temperatures, trial) for trial in try_each(score, new))
        return TuningResult.of(trials.values(), criterion).temperatures

    best = best_with([ML, MMSE, *_between(scale, settings.theta_step)])
    for halving in range(settings.num_halvings + 1 if scale.noise_variance and scale.statistics.variance else 0):
        theta_factor = math.exp(settings.theta_step * 0.5**halving)
        shift_step = settings.shift_step * unit * 0.5**halving if with_beta else 0.0
        for _ in range(settings.max_moves):
            centre, theta, shift = best, scale.theta(best), scale.shift(best)
            best = best_with([scale.temperatures(theta * theta_factor**i, shift + j * shift_step) for i, j in _SQUARE])
            if best == centre:
                break
    return TuningResult.of(trials.values(), criterion)


def _between(scale: Scale, step: float) -> list[Temperatures]:
    """Multipliers from MMSE's up to ML's, at most twice the step apart in `log theta`; no shift."""
    if not scale.noise_variance or not scale.statistics.variance:
        return []
    low = math.log(scale.smallest_theta)
    num_gaps = max(math.ceil(-low / (2.0 * step)), 1)
    return [scale.temperatures(math.exp(low * index / num_gaps), 0.0) for index in range(1, num_gaps)]
