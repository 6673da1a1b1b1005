"""Temperatures for each group: a coordinate search from the whole-model optimum."""

from collections.abc import Callable

from quietnn.errors import InfeasibleTemperatures
from quietnn.repairs.affine import ML, MMSE, Temperatures
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.temperatures.grid import try_each
from quietnn.repairs.temperatures.result import Criterion, TuningResult
from quietnn.repairs.temperatures.score import Score
from quietnn.repairs.temperatures.steps import Scale

THETA_FACTORS = (0.8, 1.25)
SHIFT_STEPS = (-0.1, 0.1)


def start_from(temperatures: Temperatures, whole: Scale, reception: Reception) -> dict[str, Temperatures]:
    """The temperatures with which every group does what one pair does to the whole model.

    Where a group cannot follow, because its own MMSE multiplier is larger, it starts at its MMSE.
    """
    theta, shift = whole.theta(temperatures), whole.shift(temperatures)
    return {group: scale.temperatures(theta, shift) for group, scale in scales(reception).items()}


def scales(reception: Reception) -> dict[str, Scale]:
    """The scale of each group's steps."""
    return {group: Scale(reception.statistics[group], reception.group_noise(group)) for group in reception.groups}


def search_layerwise(
    score: Callable[[GroupTemperatures], Score],
    reception: Reception,
    start: GroupTemperatures,
    *,
    num_sweeps: int = 1,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.LOSS,
) -> TuningResult[GroupTemperatures]:
    """Visit the groups one by one; at each, try a larger and a smaller multiplier and shift, keep what is better.

    A sweep costs at most four scores a group. The steps are halved from sweep to sweep. Judging by loss (the default)
    follows small improvements that accuracy on a hundred examples cannot resolve.

    Args:
        score: judges temperatures for all groups.
        reception: the noisy weights in their groups.
        start: where to begin, for example `start_from(...)` the whole-model optimum.
        num_sweeps: how often to visit every group.
        with_beta: search `beta` too (MMSE_pb), or leave it as it starts (MMSE_p).
        criterion: what makes a score better.
    """
    criterion = Criterion(criterion)
    trials = list(try_each(score, [start]))
    best = trials[0]
    if best.score is None:
        raise InfeasibleTemperatures("the start of a layerwise search is infeasible; start it from ML or MMSE")
    for sweep in range(num_sweeps if reception.noise_variance else 0):
        for group, scale in scales(reception).items():
            points = [
                {**best.temperatures, group: candidate}
                for candidate in _neighbours(scale, best.temperatures[group], 0.5**sweep, with_beta)
            ]
            new = list(try_each(score, points))
            trials += new
            best = TuningResult.of([best, *new], criterion).best
    return TuningResult(best, tuple(trials))


def _neighbours(scale: Scale, temperatures: Temperatures, step: float, with_beta: bool) -> list[Temperatures]:
    """The points a step away; of a group that shows no signal, only keeping it or replacing it by its mean is left."""
    theta, shift = scale.theta(temperatures), scale.shift(temperatures)
    if scale.statistics.variance == 0:
        candidates = [ML, MMSE]
    else:
        candidates = [scale.temperatures(theta * factor**step, shift) for factor in THETA_FACTORS]
        candidates += [scale.temperatures(theta, shift + offset * step) for offset in SHIFT_STEPS if with_beta]
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != temperatures]
