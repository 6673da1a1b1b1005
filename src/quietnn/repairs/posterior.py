"""Weights that maximise the posterior given all that the receiver holds: the noisy weights and labelled examples.

With a Gaussian prior `w ~ N(mu_w, sigma_w^2)` in each group, `r = w + z`, and a loss that is a negative log-likelihood,

    -log p(w | r, examples) = sum of losses + |w - r|^2 / (2 sigma_z^2) + |w - mu_w|^2 / (2 sigma_w^2) + constant

The two squares make one, `|w - w_mmse|^2 / (2 s^2)`, with `s^2 = sigma_w^2 sigma_z^2 / (sigma_w^2 + sigma_z^2)`. In
units of that posterior standard deviation, `u = (w - w_mmse) / s`, the objective is `sum of losses + |u|^2 / 2` for
every group alike, so one step size serves layers whose weights differ by orders of magnitude. Unlike the affine family,
this adjusts every noisy weight by the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.fitting.guard import Guard
from quietnn.repairs.fitting.scratch import Loss, Scratch, folds
from quietnn.repairs.fitting.starts import blended_start, given_starts, own_starts, prepare
from quietnn.repairs.fitting.whitened import DEFAULT, Fit, PosteriorSettings, maximise
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.rounding import are_rounded
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES, Partition, WeightStatistics


@dataclass(frozen=True)
class Posterior:
    """The network of largest posterior, and the evidence for it.

    Attributes:
        model: the network, a copy of the one given.
        chosen: `"posterior"`, or the start that the held-out examples preferred: `"received"` (as it came), one of the
            starts given, or one of its own: `"blended"` (with blended BatchNorm statistics), `"structured"`, `"mmse"`,
            `"branches"`, `"centre"`.
        held_out_loss: mean loss of every candidate on all examples; for the posterior, each example is judged by a fit
            that did not see it. So it is for `"blended"` beside starts that were given, where weights were rounded; it
            counts there only if it is better than the best of them by more than a standard error.
        fit_loss: mean loss on the examples at each step of the final fit; empty if a start was chosen.
        move: root mean square of `u`, how far the weights moved in posterior standard deviations.
        num_passes: cost in forward passes over all examples, a backward pass counting two.
    """

    model: nn.Module
    chosen: str
    held_out_loss: Mapping[str, float]
    fit_loss: tuple[float, ...]
    move: float
    num_passes: float


@torch.inference_mode(False)
def posterior(
    model: nn.Module,
    loss: Loss,
    num_examples: int,
    *,
    noise_variance: NoiseVariance,
    groups: str | Partition = "layerwise",
    statistics: Mapping[str, WeightStatistics] | None = None,
    centre: Temperatures | GroupTemperatures | None = None,
    starts: Mapping[str, nn.Module] | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Posterior:
    """The weights that maximise the posterior given the received weights and labelled examples.

    Fits on each half of the examples and judges the result on the other, beside the network as it came and the starts,
    which need no labels. Unless one of these is better there by more than two standard errors, the fit is repeated on
    all examples; if one is, it is returned.

    Args:
        model: the network as received; it stays as it is.
        loss: mean loss of the examples at some positions, see `Loss` and `classification_loss`.
        num_examples: how many examples the loss can address.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or group name.
        groups: the groups that have a prior of their own.
        statistics: prior of each group; estimated from the received weights when not given.
        centre: temperatures of the estimate that the Gaussian is centred on and the steps start from. When neither
            this nor `starts` is given, the best on the examples of the weights as they came and, if BatchNorm follows
            them, their estimate under the structured prior, else MMSE of the model as a whole and (where each input is
            normalised) of its branches. MMSE of *every* layer silences the head of a transformer.
        starts: networks that were repaired without labels, by name (`quietnn.calibrated_starts` makes them). The
            Gaussian is centred on the one that is best on the examples. With BatchNorm its statistics were fitted to
            its weights and are carried along as these move: better than what the examples alone can tell. Where weights
            were rounded, which is not noise, a blend of the stored statistics and the examples' is taken instead if it
            is clearly better. Without BatchNorm they stand beside those above.
        settings: how the maximum is sought.
        seed: of the split and of the augmentation.
        normalisation: module types whose parameters carry no noise.
    """
    received = noisy_weights(model, normalisation=normalisation)
    reception = Reception.of(received, noise_variance, groups=groups, statistics=statistics)
    splits = folds(num_examples, settings.num_folds, seed=seed)
    if reception.noise_variance == 0:
        return Posterior(with_weights(model, {}), "received", {}, (), 0.0, 0.0)
    follows = any(getattr(layer, "running_mean", None) is not None for layer in model.modules())
    if starts and follows and (centre is not None or not settings.blended):
        raise InvalidConfig("starts bring a centre and statistics that follow; leave out centre=, and blended=False")
    scratch = Scratch(model, loss, num_examples, blended=settings.blended, normalisation=normalisation)
    places = given_starts(starts or {}, model, received, anchors=scratch.follows)
    if not (places and scratch.follows):
        places |= own_starts(model, reception, centre, scratch, normalisation=normalisation)
    guard = Guard(scratch, splits)
    guard.judge("received", model)
    for name, place in places.items():
        guard.judge(name, place.network)
    if "blended" not in places and are_rounded(received, noise_variance):
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
        return Posterior(kept, best, guard.mean_losses, (), 0.0, scratch.num_passes)
    finished = scratch.finish(start.network, final.weights)
    return Posterior(finished, "posterior", guard.mean_losses, final.losses, final.move, scratch.num_passes)
