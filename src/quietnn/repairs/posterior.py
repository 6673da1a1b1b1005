"""Weights that maximise the posterior given all that the receiver holds: the noisy weights and labelled examples.

With a Gaussian prior `w ~ N(mu_w, sigma_w^2)` in each group, `r = w + z`, and a loss that is a negative log-likelihood,

    -log p(w | r, examples) = sum of losses + |w - r|^2 / (2 sigma_z^2) + |w - mu_w|^2 / (2 sigma_w^2) + constant

The two squares make one, `|w - w_mmse|^2 / (2 s^2)`, with `s^2 = sigma_w^2 sigma_z^2 / (sigma_w^2 + sigma_z^2)`. In
units of that posterior standard deviation, `u = (w - w_mmse) / s`, the objective is `sum of losses + |u|^2 / 2` for
every group alike, so one step size serves layers whose weights differ by orders of magnitude. Unlike the affine family,
this adjusts every noisy weight by the labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Augment, labelled
from quietnn.losses import Losses
from quietnn.moments import WeightStatistics
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.base import Repaired
from quietnn.repairs.calibrated_starts import repaired_starts
from quietnn.repairs.fitting.guard import Guard
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import blended_start, given_starts, own_starts, prepare
from quietnn.repairs.fitting.whitened import DEFAULT, Fit, PosteriorSettings, maximise
from quietnn.repairs.grouped import GroupTemperatures, grouped
from quietnn.repairs.kinds import stores_statistics
from quietnn.repairs.rounding import are_rounded
from quietnn.score import folds
from quietnn.targets import with_weights
from quietnn.weights import Partition


@torch.inference_mode(False)
def posterior(
    what: object,
    inputs: object,
    labels: object = None,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    loss: Losses | None = None,
    augment: Augment | None = None,
    groups: str | Partition = "layerwise",
    statistics: Mapping[str, WeightStatistics] | None = None,
    centre: Temperatures | GroupTemperatures | None = None,
    starts: Mapping[str, nn.Module] | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
) -> Repaired:
    """The weights that maximise the posterior given the received weights and labelled examples.

    Fits on each half of the examples and judges the result on the other, beside the received network and what needs no
    labels. Unless one of these is better there by more than two standard errors, the fit is repeated on all examples;
    if one is, it is returned (docs/posterior.md).

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`.
        labels: class numbers, or whatever `loss` compares outputs with.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or group name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, instead.
        loss: `(outputs, labels)` to one loss for each example; cross-entropy when not given.
        augment: random variants of the inputs that keep their labels, such as crops and flips.
        groups: the groups that have a prior of their own.
        statistics: prior of each group; estimated from the received weights when not given.
        centre: temperatures of the estimate that the steps start from, instead of `starts`.
        starts: networks that were repaired without labels, by name, to begin at the best of; made when not given.
        settings: how the maximum is sought.
        seed: of the split and of the augmentation.

    Returns:
        Details: `chosen` (`"posterior"`, or the start that the held-out examples preferred), `held_out_loss` (mean loss
        of every candidate; of the fit on examples it did not see), `fit_loss` (at each step of the final fit), `move`
        (how far the weights moved, in posterior standard deviations).

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> posterior(network, torch.rand(20, 4), torch.arange(20) % 2, wnr_db=3.0).name
    'posterior'
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = labelled(inputs, labels, "posterior", loss=loss, augment=augment)
    check_is(settings, PosteriorSettings, "settings", "give settings=quietnn.PosteriorSettings(num_steps=32)")
    model, received, num_examples = observation.model, observation.weights, len(evidence)
    reception = grouped(observation, groups, statistics=statistics)
    splits = folds(num_examples, settings.num_folds, seed=seed)
    if reception.noise_variance == 0:
        return _result(with_weights(model, {}), "received", {}, (), 0.0, 0.0)
    num_passes = 0.0
    if starts is None and centre is None and settings.blended:
        made = repaired_starts(observation, evidence.in_memory())
        starts, num_passes = {name: one.model for name, one in made.items()}, sum(one.passes for one in made.values())
    if starts and stores_statistics(model) and (centre is not None or not settings.blended):
        raise InvalidConfig("starts bring a centre and statistics that follow; leave out centre=, and blended=False")
    scratch = Scratch(
        observation, evidence.loss_at, num_examples, blended=settings.blended, batch_size=evidence.batch_size
    )
    scratch.num_passes += num_passes
    places = given_starts(starts or {}, model, received, anchors=scratch.follows)
    if not (places and scratch.follows):
        places |= own_starts(observation, reception, centre, scratch)
    guard = Guard(scratch, splits)
    guard.judge("received", model)
    for name, place in places.items():
        guard.judge(name, place.network)
    if "blended" not in places and _are_rounded(observation):
        # Calibration counts on noise. Where the error is none, the examples' own statistics may be better.
        guard.judge_fits("blended", lambda positions: scratch.finish(model, received, positions))
        if guard.is_clearly_better("blended", guard.best(places)):
            places |= blended_start(model, received, scratch)
    start = places["centre" if centre is not None else guard.best(places)]
    whitened = prepare(scratch, start, reception)

    def fit(positions: Tensor, settings: PosteriorSettings) -> Fit:
        return maximise(scratch, whitened, positions, num_examples=num_examples, settings=settings, seed=seed)

    short = replace(settings, num_steps=settings.num_guard_steps)
    guard.judge_fits("posterior", lambda positions: scratch.finish(start.network, fit(positions, short).weights))
    best = guard.best(("received", *places))
    final = fit(torch.arange(num_examples), settings) if guard.is_worth_it("posterior", best) else None
    if final is None or not final.move:
        kept = with_weights(model if best == "received" else places[best].network, {})
        return _result(kept, best, guard.mean_losses, (), 0.0, scratch.num_passes)
    finished = scratch.finish(start.network, final.weights)
    return _result(finished, "posterior", guard.mean_losses, final.losses, final.move, scratch.num_passes)


def _are_rounded(observation: Observation[Any, Any]) -> bool:
    """As the observation tells, else as the weights show."""
    if observation.rounded is not None:
        return observation.rounded
    return are_rounded(observation.weights, observation.known_noise)


def _result(
    model: nn.Module,
    chosen: str,
    held_out_loss: Mapping[str, float],
    fit_loss: tuple[float, ...],
    move: float,
    passes: float,
) -> Repaired:
    details = {"chosen": chosen, "held_out_loss": held_out_loss, "fit_loss": fit_loss, "move": move}
    return Repaired(model, "posterior", passes, details)
