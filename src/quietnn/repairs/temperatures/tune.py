"""Find the temperatures for a noisy model with a score of your own."""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.noise import NoiseVariance
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.temperatures.coarse_to_fine import coarse_to_fine
from quietnn.repairs.temperatures.grid import search_grid
from quietnn.repairs.temperatures.layerwise import search_layerwise, start_from
from quietnn.repairs.temperatures.memory import Memory
from quietnn.repairs.temperatures.racing import ScoreSome, race, race_coarse_to_fine
from quietnn.repairs.temperatures.result import Criterion, TuningResult
from quietnn.repairs.temperatures.score import Score
from quietnn.repairs.temperatures.steps import Scale
from quietnn.targets import noisy_weights
from quietnn.weights import NORMALISATION_TYPES, Partition

ScoreModel = Callable[[nn.Module], Score]
"""Judges a network, for example by its accuracy and loss on a hundred examples."""

SEARCHES = ("coarse-to-fine", "racing")
"""Every point on all examples, or most points on a few of them."""


@dataclass(frozen=True)
class SubsetScore:
    """A score that can also look at some of the examples only, as racing needs it.

    Attributes:
        of: judges a network by the examples at some positions.
        num_examples: how many examples there are.

    >>> score = SubsetScore(lambda network, positions: Score(1.0, 0.0, len(positions)), num_examples=100)
    >>> score(nn.Identity()).num_examples
    100
    """

    of: Callable[[nn.Module, Tensor], Score]
    num_examples: int

    def __call__(self, network: nn.Module) -> Score:
        """The score on all examples."""
        return self.of(network, torch.arange(self.num_examples))


def tune(
    model: nn.Module,
    score: ScoreModel | SubsetScore,
    *,
    noise_variance: NoiseVariance,
    groups: str | Partition = "whole",
    search: str = "coarse-to-fine",
    grid: Sequence[Temperatures] | None = None,
    with_beta: bool = True,
    criterion: Criterion | str = Criterion.ACCURACY,
    seed: int = 0,
    noisy: Collection[str] | None = None,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> TuningResult[Temperatures] | TuningResult[GroupTemperatures]:
    """Search the temperatures under which the denoised model scores best. The model itself stays as it is.

    For one group: the `grid` given, or a coarse-to-fine search of at most 22 points. For several groups: the same
    over the whole model, then a coordinate search from its optimum, at most four scores a group. With
    `search="racing"` most points of the whole-model search see only a few of the examples, and the cost falls from 22
    passes over them to about seven.

    Args:
        model: the network as received.
        score: judges a denoised network; never let it see test data.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        groups: `"whole"`, `"layerwise"` or a partition of your own.
        search: one of `SEARCHES`; racing needs a `SubsetScore`.
        grid: the points to try over the whole model, all or by racing.
        with_beta: search `beta` too (MMSE_pb), or leave it at zero (MMSE_p).
        criterion: rank by accuracy with ties broken by loss, or by loss. The layerwise steps, and the rounds of a race
            before its last, always use loss.
        seed: of the order in which a race looks at the examples.
        noisy: names of the noisy tensors, where the usual rule does not fit; give `denoise` the same.
        normalisation: module types whose parameters carry no noise.

    Returns:
        The best temperatures and every trial; pass `result.temperatures` to `quietnn.denoise(temperatures=...)`.
    """
    if search not in SEARCHES:
        raise unknown_choice("search", search, SEARCHES)
    received = noisy_weights(model, noisy=noisy, normalisation=normalisation)
    whole = Reception.of(received, noise_variance)
    scale = Scale(whole.statistics["whole"], whole.noise_variance)
    judge = Judge(model, score, normalisation, noisy=noisy)
    if search == "racing":
        some, num_examples = judge.for_some(whole), judge.num_examples
        if grid is not None:
            best = race(some, grid, num_examples, criterion=criterion, seed=seed)
        else:
            best = race_coarse_to_fine(some, scale, num_examples, with_beta=with_beta, criterion=criterion, seed=seed)
    elif grid is not None:
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
        score: ScoreModel | SubsetScore,
        normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
        *,
        noisy: Collection[str] | None = None,
    ) -> None:
        self._scratch = copy.deepcopy(model)
        self._weights = noisy_weights(self._scratch, noisy=noisy, normalisation=normalisation)
        self._score = score
        self._memory = Memory()
        self._written: tuple[Reception, GroupTemperatures] | None = None

    def for_reception(self, reception: Reception) -> Callable[[Temperatures | GroupTemperatures], Score]:
        """A function from temperatures to the score of the network they give.

        Of several groups, those with the temperatures of the last call are left as they are, and the layers before
        the first that changed answer from memory.
        """

        def score(temperatures: Temperatures | GroupTemperatures) -> Score:
            return self._judge(reception, temperatures)

        return score

    @property
    def num_examples(self) -> int:
        """How many examples there are to choose from."""
        return self._subset.num_examples

    def for_some(self, reception: Reception) -> ScoreSome[Temperatures]:
        """A function from temperatures and positions to the score of the network on the examples there."""
        subset = self._subset

        def score(temperatures: Temperatures, positions: Tensor) -> Score:
            self._write(reception, temperatures)
            return subset.of(self._scratch, positions)

        return score

    def _judge(self, reception: Reception, temperatures: Temperatures | GroupTemperatures) -> Score:
        self._write(reception, temperatures)
        if isinstance(temperatures, Temperatures):
            return self._score(self._scratch)
        with self._memory:
            return self._score(self._scratch)

    def _write(self, reception: Reception, temperatures: Temperatures | GroupTemperatures) -> None:
        """Denoise the scratch copy; what is known to be there already is not written again."""
        denoisers = reception.denoisers(temperatures)
        if isinstance(temperatures, Temperatures):
            temperatures = dict.fromkeys(reception.groups, temperatures)
        there = self._written[1] if self._written and self._written[0] is reception else {}
        self._written = None  # until it is done
        changed = {name: denoiser for name, denoiser in denoisers.items() if temperatures[name] != there.get(name)}
        reception.estimate(changed, out=self._weights)
        self._written = (reception, temperatures)

    @property
    def _subset(self) -> SubsetScore:
        if not isinstance(self._score, SubsetScore):
            raise InvalidConfig(
                "racing looks at some of the examples at a time, and this score always looks at all; give "
                "SubsetScore(lambda network, positions: ..., num_examples=...), or leave out search='racing'"
            )
        return self._score
