"""Find the temperatures of the affine family for a noisy model, by a score: over the whole model, then by layer."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from quietnn.errors import InvalidConfig, check_is, unknown_choice
from quietnn.evidence import Evidence, labelled
from quietnn.losses import Losses
from quietnn.noise import NoiseVariance, noise_by_group
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.base import Repaired
from quietnn.repairs.denoise import denoised
from quietnn.repairs.grouped import GroupTemperatures, Reception, grouped
from quietnn.repairs.temperatures.coarse_to_fine import coarse_to_fine, even_grid
from quietnn.repairs.temperatures.gradient import GradientSettings, tune_by_gradient
from quietnn.repairs.temperatures.grid import AUTHORS_GRIDS, search_grid
from quietnn.repairs.temperatures.layerwise import search_layerwise, start_from
from quietnn.repairs.temperatures.memory import Memory
from quietnn.repairs.temperatures.natural import LAYERWISE, natural_unit, natural_units, search_natural
from quietnn.repairs.temperatures.racing import ScoreSome, race, race_coarse_to_fine
from quietnn.repairs.temperatures.result import Criterion, Trial, TuningResult
from quietnn.repairs.temperatures.steps import Scale
from quietnn.score import Score, ScoreFunction, SubsetScore
from quietnn.targets import with_weights
from quietnn.theory.family import Form
from quietnn.weights import Partition

NATURAL = "natural"
"""The search in natural units: a bracket over the whole model, then all layers by gradient."""

SEARCHES = ("coarse-to-fine", NATURAL, "racing", "even-grid", *AUTHORS_GRIDS)
"""How the whole-model temperatures are searched: 22 points fitted to the noise, a bracket in natural units, the 22
points raced, the full grid of their steps, or one of the authors' grids."""


@dataclass(frozen=True)
class Search:
    """How temperatures are searched: over the whole model, then layer by layer.

    Attributes:
        whole: one of `SEARCHES`; left out, racing where the score can look at some of the examples, else
            coarse-to-fine.
        criterion: what ranks whole-model points, `"accuracy"` (ties broken by loss) or `"loss"`.
        layerwise_criterion: the same for the steps of the coordinate search, which `"natural"` does not make.
        layerwise_sweeps: how often the coordinate search visits every layer.
        form: how the prior mean enters the family (see `Form`).
        grid: points of your own to try over the whole model, all or by racing.

    >>> Search(whole="racing").criterion
    'accuracy'
    """

    whole: str | None = None
    criterion: str = Criterion.ACCURACY.value
    layerwise_criterion: str = Criterion.LOSS.value
    layerwise_sweeps: int = 1
    form: str = Form.CENTRED.value
    grid: Sequence[Temperatures] | None = None

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        if self.whole is not None and self.whole not in SEARCHES:
            raise unknown_choice("search", self.whole, SEARCHES)
        Criterion(self.criterion), Criterion(self.layerwise_criterion), Form(self.form)
        if self.grid is not None:
            object.__setattr__(self, "grid", tuple(self.grid))


DEFAULT = Search()


def tune(
    what: object,
    inputs: object = None,
    labels: object = None,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    loss: Losses | None = None,
    score: ScoreFunction | None = None,
    higher_is_better: bool = True,
    groups: str | Partition = "whole",
    search: Search = DEFAULT,
    with_beta: bool = True,
    seed: int = 0,
) -> Repaired:
    """Denoise with the temperatures `(lambda', beta)` under which the network scores best.

    For one group at most 22 points are tried, most of them on a few of the examples where that is possible; for
    several groups a coordinate search goes on from there, at most four scores a group.

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`; not needed with a score of your own.
        labels: class numbers, or whatever `loss` compares outputs with.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        loss: `(outputs, labels)` to one loss for each example; cross-entropy when not given.
        score: any function from a network to a number (or a `Score`), instead of accuracy on the examples. Never let it
            see test data.
        higher_is_better: which way `score` points: False for perplexity or an error.
        groups: `"whole"`, `"layerwise"` or a partition of your own.
        search: how it is searched, see `Search`.
        with_beta: search `beta` too (MMSE_pb), or leave it at zero (MMSE_p).
        seed: of the order in which a race looks at the examples.

    Returns:
        The denoised network. Details: `temperatures`, and `search` with every trial.

    >>> network = nn.Linear(20, 20)
    >>> length = lambda one: one.weight.detach().norm()
    >>> found = tune(network, score=length, higher_is_better=False, wnr_db=0.0)
    >>> found.details["temperatures"].lambda_prime                            # the shortest weights: MMSE
    0.0
    """
    check_is(search, Search, "search", f"give search=quietnn.Search({search!r})")
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    options: dict[str, Any] = {"loss": loss, "score": score, "higher_is_better": None if higher_is_better else False}
    evidence = labelled(inputs, labels, "tune", **options) if score is None else Evidence.of(inputs, labels, **options)
    if groups == "whole":
        return (mmse_pb if with_beta else mmse_p)(observation, evidence, search=search, seed=seed)
    made = mmse_pb_layerwise(observation, evidence, search=search, groups=groups, with_beta=with_beta, seed=seed)
    return made if with_beta else replace(made, name="mmse_p_layerwise")


def searched(
    observation: Observation[Any, Any],
    evidence: Evidence,
    search: Search = DEFAULT,
    *,
    with_beta: bool = True,
    seed: int = 0,
) -> TuningResult[Temperatures]:
    """The whole-model temperatures that score best; several methods that need them search once."""

    def make() -> TuningResult[Temperatures]:
        whole, scale, judge = _whole(observation, search), _scale(observation, search), _judge(observation, evidence)
        kind = search.whole or ("racing" if judge.can_race else "coarse-to-fine")
        if kind == "racing":
            some, num_examples = judge.for_some(whole), judge.num_examples
            if search.grid is not None:
                points = _points(search.grid, with_beta)
                return race(some, points, num_examples, criterion=search.criterion, seed=seed)
            return race_coarse_to_fine(
                some, scale, num_examples, with_beta=with_beta, criterion=search.criterion, seed=seed
            )
        score = judge.for_reception(whole)
        if kind == "coarse-to-fine" and search.grid is None:
            return coarse_to_fine(score, scale, with_beta=with_beta, criterion=search.criterion)
        if kind == NATURAL and search.grid is None:
            unit = natural_unit(whole)
            return search_natural(score, scale, unit, with_beta=with_beta, criterion=search.criterion)
        grid = search.grid
        if grid is None:
            grid = even_grid(scale) if kind == "even-grid" else AUTHORS_GRIDS[kind]
        return search_grid(score, _points(grid, with_beta), criterion=search.criterion)

    return observation.remember(("searched", evidence, search, with_beta, seed), make)


def searched_by_group(
    observation: Observation[Any, Any],
    evidence: Evidence,
    search: Search = DEFAULT,
    *,
    groups: str | Partition = "layerwise",
    with_beta: bool = True,
    seed: int = 0,
) -> TuningResult[GroupTemperatures]:
    """The temperatures of each group that score best, by a coordinate search from the whole-model optimum."""
    best = searched(observation, evidence, search, with_beta=with_beta, seed=seed)
    layers = grouped(observation, groups, form=search.form)
    return search_layerwise(
        _judge(observation, evidence).for_reception(layers),
        layers,
        start_from(best.temperatures, _scale(observation, search), layers),
        num_sweeps=search.layerwise_sweeps,
        with_beta=with_beta,
        criterion=search.layerwise_criterion,
        shift_steps=natural_units(layers) if search.whole == NATURAL else None,
    )


def mmse_p(
    observation: Observation[Any, Any], evidence: Evidence, *, search: Search = DEFAULT, seed: int = 0
) -> Repaired:
    """MMSE_p over the whole model: `lambda'` searched, `beta = 0` (eq. 10)."""
    found = searched(observation, evidence, search, with_beta=False, seed=seed)
    return _applied(observation, "mmse_p", _whole(observation, search), found, found.num_passes)


def mmse_pb(
    observation: Observation[Any, Any], evidence: Evidence, *, search: Search = DEFAULT, seed: int = 0
) -> Repaired:
    """MMSE_pb over the whole model: `lambda'` and `beta` searched (eq. 13)."""
    found = searched(observation, evidence, search, seed=seed)
    return _applied(observation, "mmse_pb", _whole(observation, search), found, found.num_passes)


def mmse_pb_layerwise(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    search: Search = DEFAULT,
    groups: str | Partition = "layerwise",
    with_beta: bool = True,
    seed: int = 0,
) -> Repaired:
    """MMSE_pb with a pair of temperatures for each layer, or each group of a partition.

    In natural units layers are tuned by gradient, which needs a loss; else one after the other, by the score.
    """
    if search.whole == NATURAL and groups == "layerwise" and with_beta and evidence.has_labels:
        return replace(mmse_pb_gradient(observation, evidence, search=search, seed=seed), name="mmse_pb_layerwise")
    whole = searched(observation, evidence, search, with_beta=with_beta, seed=seed)
    found = searched_by_group(observation, evidence, search, groups=groups, with_beta=with_beta, seed=seed)
    layers = grouped(observation, groups, form=search.form)
    return _applied(observation, "mmse_pb_layerwise", layers, found, whole.num_passes + found.num_passes)


def mmse_pb_gradient(
    observation: Observation[Any, Any], evidence: Evidence, *, search: Search = DEFAULT, seed: int = 0
) -> Repaired:
    """MMSE_pb layerwise by gradient, from the whole-model optimum; noise that differs in a layer counts by its mean.

    The steps are those of the centred form, whatever form the search was asked for.
    """
    whole = searched(observation, evidence, search, seed=seed)
    layers = grouped(observation, "layerwise", form=search.form)
    even = observation.with_noise(noise_by_group(observation.known_noise, layers.weights, layers.groups))
    start = start_from(whole.temperatures, _scale(observation, search), grouped(even, "layerwise"))
    settings = LAYERWISE if search.whole == NATURAL else GradientSettings()
    tuned = tune_by_gradient(even, evidence, start=start, settings=settings, seed=seed)
    model = denoised(even, groups="layerwise", temperatures=tuned.temperatures)
    found = TuningResult.of([Trial(tuned.temperatures, evidence.score_of(model))])
    passes = math.ceil(whole.num_passes + tuned.num_passes) + 1
    details = {"temperatures": tuned.temperatures, "search": found, "held_out_loss": tuned.held_out_loss}
    return Repaired(model, "mmse_pb_gradient", passes, details)


def _applied(
    observation: Observation[Any, Any], name: str, weights: Reception, found: TuningResult[Any], passes: float
) -> Repaired:
    """The network under the temperatures that a search found."""
    model = with_weights(observation.received, weights.estimate(weights.denoisers(found.temperatures)))
    return Repaired(model, name, math.ceil(passes), {"temperatures": found.temperatures, "search": found})


def _points(grid: Sequence[Temperatures], with_beta: bool) -> tuple[Temperatures, ...]:
    return tuple(point for point in grid if with_beta or point.beta == 0)


def _whole(observation: Observation[Any, Any], search: Search) -> Reception:
    return grouped(observation, form=search.form)


def _scale(observation: Observation[Any, Any], search: Search) -> Scale:
    whole = _whole(observation, search)
    return Scale(whole.statistics["whole"], whole.noise_variance)


def _judge(observation: Observation[Any, Any], evidence: Evidence) -> "Judge":
    return observation.remember(("judge", evidence), lambda: Judge(observation, evidence.as_score))


class Judge:
    """Scores temperatures by denoising one scratch copy of the model again and again."""

    def __init__(self, observation: Observation[Any, Any], score: Callable[[nn.Module], Score] | SubsetScore) -> None:
        scratch = observation.on(copy.deepcopy(observation.model))
        self._scratch, self._weights = scratch.model, scratch.weights
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
    def can_race(self) -> bool:
        """Whether the score can look at some of the examples."""
        return isinstance(self._score, SubsetScore)

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
                "quietnn.score.SubsetScore(lambda network, positions: ..., num_examples=...), or leave out search"
            )
        return self._score
