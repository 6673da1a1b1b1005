"""Find the temperatures of the affine family for a noisy model, by a score: over the whole model, then by layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from quietnn.errors import InvalidConfig, check_is, unknown_choice
from quietnn.evidence import Evidence, labelled
from quietnn.losses import Losses
from quietnn.noise import NoiseVariance, noise_by_group
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.base import Repaired
from quietnn.repairs.grouped import GroupedWeights, denoised, grouped
from quietnn.repairs.temperatures.gradient import LAYERWISE, GradientSettings, tune_by_gradient
from quietnn.repairs.temperatures.judge import Judge
from quietnn.repairs.temperatures.racing import Race
from quietnn.repairs.temperatures.result import Criterion, Trial, Tried, TuningResult
from quietnn.repairs.temperatures.searches import (
    AUTHORS_GRIDS,
    coarse_to_fine,
    even_grid,
    product_grid,
    search_layerwise,
    search_natural,
)
from quietnn.repairs.temperatures.steps import Scale, natural_unit, natural_units, start_from
from quietnn.score import ScoreFunction
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
        whole: one of `SEARCHES`. By default racing if the score can look at some of the examples, else coarse-to-fine.
        criterion: what ranks whole-model points, `"accuracy"` (ties broken by loss) or `"loss"`.
        layerwise_criterion: the same for the steps of the coordinate search, which `"natural"` does not make.
        layerwise_sweeps: how often the coordinate search visits every layer.
        form: how the prior mean enters the family (see `Form`).
        grid: your own points to try over the whole model, all of them or by racing.

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

    For one group at most 22 points are tried, if possible most of them on a few of the examples. For several groups a
    coordinate search follows, with at most four scores per group.

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`; not needed with a score of your own.
        labels: class numbers, or what else `loss` compares outputs with.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        score: any function from a network to a number (or a `Score`), instead of accuracy on the examples. Never let it
            see test data.
        higher_is_better: which way `score` points: False for perplexity or an error.
        groups: `"whole"`, `"layerwise"` or a partition of your own.
        search: how to search, see `Search`.
        with_beta: search `beta` too (MMSE_pb), or leave it at zero (MMSE_p).
        seed: of the order in which a race looks at the examples.

    Returns:
        The denoised network. Details: `temperatures`, and `search` with every trial.

    >>> from torch import nn
    >>> network = nn.Linear(20, 20)
    >>> length = lambda one: one.weight.detach().norm()
    >>> found = tune(network, score=length, higher_is_better=False, wnr_db=0.0)
    >>> found.details["temperatures"].lambda_prime                            # the shortest weights: MMSE
    0.0
    """
    check_is(search, Search, "search", f"give search=quietnn.Search({search!r})")
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    given: dict[str, Any] = {"loss": loss, "score": score, "higher_is_better": None if higher_is_better else False}
    evidence = labelled(inputs, labels, "tune", **given) if score is None else Evidence.of(inputs, labels, **given)
    options: dict[str, Any] = {"search": search, "with_beta": with_beta, "seed": seed}
    if groups == "whole":
        return mmse_pb(observation, evidence, **options)
    return mmse_pb_layerwise(observation, evidence, groups=groups, **options)


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
        whole, judge = grouped(observation, form=search.form), _judge(observation, evidence)
        score, scale, criterion = partial(judge.score, whole), _scale(whole), search.criterion
        kind = search.whole or ("racing" if judge.can_race else "coarse-to-fine")
        points = search.grid
        if points is None and kind == "even-grid":
            points = even_grid(scale)
        elif points is None and kind in AUTHORS_GRIDS:
            points = product_grid(*AUTHORS_GRIDS[kind])
        is_race = kind == "racing"
        tried = Race(score, judge.subset.num_examples, criterion, seed=seed) if is_race else Tried(score, criterion)
        if points is not None:
            points = [point for point in points if with_beta or point.beta == 0]
            if not points:
                raise InvalidConfig("the grid is empty; give at least one pair of temperatures")
            return tried.on(points)
        if kind == NATURAL:
            return search_natural(tried, scale, natural_unit(whole), with_beta=with_beta)
        return coarse_to_fine(tried, scale, with_beta=with_beta)

    return observation.remember(("searched", evidence, search, with_beta, seed), make)


def mmse_pb(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    search: Search = DEFAULT,
    with_beta: bool = True,
    seed: int = 0,
) -> Repaired:
    """MMSE_pb over the whole model: `lambda'` and `beta` searched (eq. 13); or MMSE_p, `beta = 0` (eq. 10)."""
    found = searched(observation, evidence, search, with_beta=with_beta, seed=seed)
    model = denoised(observation, found.temperatures, form=search.form)
    return _result(model, "mmse_pb" if with_beta else "mmse_p", found, found.num_passes)


def mmse_pb_layerwise(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    search: Search = DEFAULT,
    groups: str | Partition = "layerwise",
    with_beta: bool = True,
    seed: int = 0,
) -> Repaired:
    """MMSE_pb (or MMSE_p) with a pair of temperatures for each layer, or each group of a partition.

    In natural units layers are tuned by gradient, which needs a loss; else one after the other, by the score, from the
    whole-model optimum.
    """
    if search.whole == NATURAL and groups == "layerwise" and with_beta and evidence.has_labels:
        return replace(mmse_pb_gradient(observation, evidence, search=search, seed=seed), name="mmse_pb_layerwise")
    whole = searched(observation, evidence, search, with_beta=with_beta, seed=seed)
    layers = grouped(observation, groups, form=search.form)
    found = search_layerwise(
        partial(_judge(observation, evidence).score, layers),
        layers,
        start_from(whole.temperatures, _scale(grouped(observation, form=search.form)), layers),
        num_sweeps=search.layerwise_sweeps,
        with_beta=with_beta,
        criterion=search.layerwise_criterion,
        shift_steps=natural_units(layers) if search.whole == NATURAL else None,
    )
    model = denoised(observation, found.temperatures, groups, form=search.form)
    name = "mmse_pb_layerwise" if with_beta else "mmse_p_layerwise"
    return _result(model, name, found, whole.num_passes + found.num_passes)


def mmse_pb_gradient(
    observation: Observation[Any, Any], evidence: Evidence, *, search: Search = DEFAULT, seed: int = 0
) -> Repaired:
    """MMSE_pb layerwise by gradient, from the whole-model optimum; noise that differs in a layer counts by its mean.

    The steps are those of the centred form, whatever form the search was asked for.
    """
    whole = searched(observation, evidence, search, seed=seed)
    layers = grouped(observation, "layerwise", form=search.form)
    even = observation.with_noise(noise_by_group(observation.known_noise, layers.weights, layers.groups))
    scale = _scale(grouped(observation, form=search.form))
    start = start_from(whole.temperatures, scale, grouped(even, "layerwise"))
    settings = LAYERWISE if search.whole == NATURAL else GradientSettings()
    tuned = tune_by_gradient(even, evidence, start=start, settings=settings, seed=seed)
    model = denoised(even, tuned.temperatures, "layerwise")
    found = TuningResult.of([Trial(tuned.temperatures, evidence.score_of(model))])
    passes = math.ceil(whole.num_passes + tuned.num_passes) + 1
    return _result(model, "mmse_pb_gradient", found, passes, held_out_loss=tuned.held_out_loss)


def _result(model: Any, name: str, found: TuningResult[Any], passes: float, **more: Any) -> Repaired:
    return Repaired(model, name, math.ceil(passes), {"temperatures": found.temperatures, "search": found, **more})


def _scale(whole: GroupedWeights) -> Scale:
    return Scale(whole.statistics["whole"], whole.noise_variance)


def _judge(observation: Observation[Any, Any], evidence: Evidence) -> Judge:
    return observation.remember(("judge", evidence), lambda: Judge(observation, evidence.as_score))
