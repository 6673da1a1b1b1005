"""Find the temperatures for a noisy model with a score of your own."""

import copy
from collections.abc import Callable, Sequence

from torch import nn

from quietnn.denoisers.affine import Temperatures
from quietnn.denoisers.reception import GroupTemperatures, Reception
from quietnn.targets import noisy_weights
from quietnn.tuning.coarse_to_fine import coarse_to_fine
from quietnn.tuning.grid import search_grid
from quietnn.tuning.layerwise import search_layerwise, start_from
from quietnn.tuning.result import Criterion, TuningResult
from quietnn.tuning.score import Score
from quietnn.tuning.steps import Scale
from quietnn.weights import NORMALISATION_TYPES, Partition

ScoreModel = Callable[[nn.Module], Score]
"""Judges a network, for example by its accuracy and loss on a hundred examples."""


def tune(
    model: nn.Module,
    score: ScoreModel,
    *,
    noise_variance: float,
    groups: str | Partition = "whole",
    grid: Sequence[Temperatures] | None = None,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.ACCURACY,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> TuningResult[Temperatures] | TuningResult[GroupTemperatures]:
    """Search the temperatures under which the denoised model scores best. The model itself stays as it is.

    For one group: the `grid` given, or a coarse-to-fine search of at most 22 points. For several groups: the same
    over the whole model, then a coordinate search from its optimum, at most four scores a group.

    Args:
        model: the network as received.
        score: judges a denoised network; never let it see test data.
        noise_variance: `sigma_z^2`.
        groups: `"whole"`, `"layerwise"` or a partition of your own.
        grid: the points to try over the whole model.
        with_beta: search `beta` too (MMSE_pb), or leave it at zero (MMSE_p).
        criterion: rank by accuracy with ties broken by loss, or by loss. The layerwise steps always use loss.
        normalisation: module types whose parameters carry no noise.

    Returns:
        The best temperatures and every trial; pass `result.temperatures` to `quietnn.denoise(temperatures=...)`.
    """
    received = noisy_weights(model, normalisation=normalisation)
    whole = Reception.of(received, noise_variance)
    scale = Scale(whole.statistics["whole"], noise_variance)
    judge = Judge(model, score, normalisation)
    if grid is not None:
        best = search_grid(judge.for_reception(whole), grid, criterion=criterion)
    else:
        best = coarse_to_fine(judge.for_reception(whole), scale, with_beta=with_beta, criterion=criterion)
    if groups == "whole":
        return best
    grouped = Reception.of(received, noise_variance, groups=groups)
    start = start_from(best.temperatures, scale, grouped)
    return search_layerwise(judge.for_reception(grouped), grouped, start, with_beta=with_beta)


class Judge:
    """Scores temperatures by denoising one scratch copy of the model again and again."""

    def __init__(
        self,
        model: nn.Module,
        score: ScoreModel,
        normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
    ) -> None:
        self._scratch = copy.deepcopy(model)
        self._weights = noisy_weights(self._scratch, normalisation=normalisation)
        self._score = score

    def for_reception(self, reception: Reception) -> Callable[[Temperatures | GroupTemperatures], Score]:
        """A function from temperatures to the score of the network they give."""

        def score(temperatures: Temperatures | GroupTemperatures) -> Score:
            reception.estimate(reception.denoisers(temperatures), out=self._weights)
            return self._score(self._scratch)

        return score
