"""Temperatures for each group: a coordinate search from the whole-model optimum."""

from collections.abc import Callable, Mapping

from quietnn.errors import InfeasibleTemperatures
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.grouped import GroupedWeights, GroupTemperatures
from quietnn.repairs.temperatures.grid import try_each
from quietnn.repairs.temperatures.result import Criterion, TuningResult
from quietnn.repairs.temperatures.steps import Scale
from quietnn.score import Score

THETA_FACTORS = (0.8, 1.25)
SHIFT_STEP = 0.1


def start_from(temperatures: Temperatures, whole: Scale, by_group: GroupedWeights) -> dict[str, Temperatures]:
    """The temperatures with which every group does what one pair does to the whole model.

    Where a group cannot follow, because its own MMSE multiplier is larger, it starts at its MMSE.
    """
    theta, shift = whole.theta(temperatures), whole.shift(temperatures)
    return {group: scale.temperatures(theta, shift) for group, scale in scales(by_group).items()}


def scales(by_group: GroupedWeights) -> dict[str, Scale]:
    """The scale of each group's steps."""
    return {group: Scale(by_group.statistics[group], by_group.group_noise(group)) for group in by_group.groups}


def search_layerwise(
    score: Callable[[GroupTemperatures], Score],
    by_group: GroupedWeights,
    start: GroupTemperatures,
    *,
    num_sweeps: int = 1,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.LOSS,
    shift_steps: Mapping[str, float] | None = None,
) -> TuningResult[GroupTemperatures]:
    """Visit the groups one by one; at each, try a larger and a smaller multiplier and shift, keep what is better.

    A sweep costs at most four scores a group. The steps are halved from sweep to sweep. Judging by loss (the default)
    follows small improvements that accuracy on a hundred examples cannot resolve.

    Args:
        score: judges temperatures for all groups.
        by_group: the noisy weights in their groups.
        start: where to begin, for example `start_from(...)` the whole-model optimum.
        num_sweeps: how often to visit every group.
        with_beta: search `beta` too (MMSE_pb), or leave it as it starts (MMSE_p).
        criterion: what makes a score better.
        shift_steps: the first step of each group's shift in noise standard deviations, default 0.1 for all.
    """
    criterion = Criterion(criterion)
    trials = list(try_each(score, [start]))
    best = trials[0]
    if best.score is None:
        raise InfeasibleTemperatures("the start of a layerwise search is infeasible; start it from ML or MMSE")
    for sweep in range(num_sweeps if by_group.noise_variance else 0):
        for group, scale in scales(by_group).items():
            shift_step = (SHIFT_STEP if shift_steps is None else shift_steps[group]) if with_beta else 0.0
            points = [
                {**best.temperatures, group: candidate}
                for candidate in _neighbours(scale, best.temperatures[group], 0.5**sweep, shift_step)
            ]
            new = list(try_each(score, points))
            trials += new
            best = TuningResult.of([best, *new], criterion).best
    return TuningResult(best, tuple(trials))


def _neighbours(scale: Scale, temperatures: Temperatures, step: float, shift_step: float) -> list[Temperatures]:
    """The points a step away; of a group that shows no signal, only keeping it or replacing it by its mean is left."""
    theta, shift = scale.theta(temperatures), scale.shift(temperatures)
    if scale.statistics.variance == 0:
        candidates = [ML, MMSE]
    else:
        candidates = [scale.temperatures(theta * factor**step, shift) for factor in THETA_FACTORS]
        candidates += [scale.temperatures(theta, shift + sign * shift_step * step) for sign in (-1, 1)]
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != temperatures]
