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

from quietnn.denoisers.affine import MMSE, Temperatures
from quietnn.denoisers.evidence import Calibrate, Loss, Scratch, folds
from quietnn.denoisers.reception import GroupTemperatures, Reception
from quietnn.denoisers.structured import structured_denoisers
from quietnn.denoisers.whitened import DEFAULT, Fit, PosteriorSettings, Whitened, maximise
from quietnn.noise import NoiseVariance
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES, Partition, Weights, WeightStatistics


@dataclass(frozen=True)
class Posterior:
    """The network of largest posterior, and the evidence for it.

    Attributes:
        model: the network, a copy of the one given.
        chosen: `"posterior"`, or the start that the held-out examples preferred: `"received"` (as it came),
            `"blended"` (with blended BatchNorm statistics), `"structured"`, `"calibrated"`, `"mmse"`, or the `"centre"`
            given.
        held_out_loss: mean loss of every candidate on all examples; for the posterior, each example is judged by a fit
            that did not see it.
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
    calibrate: Calibrate | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Posterior:
    """The weights that maximise the posterior given the received weights and labelled examples.

    Fits on each half of the examples and judges the result on the other, beside the network as it came, the same with
    blended BatchNorm statistics, and an estimate that needs no labels. If the fit wins, it is repeated on all examples;
    if not, the best start is returned: on that evidence the result is never worse than the weights as they came.

    Args:
        model: the network as received; it stays as it is.
        loss: mean loss of the examples at some positions, see `Loss` and `classification_loss`.
        num_examples: how many examples the loss can address.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or group name.
        groups: the groups that have a prior of their own.
        statistics: prior of each group; estimated from the received weights when not given.
        centre: temperatures of the estimate that the Gaussian is centred on and the steps start from. When not given,
            the better on the examples of the weights as they came and, if BatchNorm follows them, their estimate under
            the structured prior, else MMSE of the model as a whole. One multiplier for all layers keeps their
            proportions; MMSE layer by layer silences whole layers of a transformer.
        calibrate: another way to fit BatchNorm statistics to the weights as they came, such as noise-aware calibration
            with your inputs, for the fit to be judged beside.
        settings: how the maximum is sought.
        seed: of the split and of the augmentation.
        normalisation: module types whose parameters carry no noise.
    """
    received = noisy_weights(model, normalisation=normalisation)
    reception = Reception.of(received, noise_variance, groups=groups, statistics=statistics)
    splits = folds(num_examples, settings.num_folds, seed=seed)
    if reception.noise_variance == 0:
        return Posterior(with_weights(model, {}), "received", {}, (), 0.0, 0.0)
    scratch = Scratch(model, loss, num_examples, blended=settings.blended, normalisation=normalisation)
    everything = torch.arange(num_examples)
    starts = {"blended": received, **_centres(model, reception, centre, scratch, normalisation)}
    scores = {"received": scratch.judge_network(model, everything)}
    for name, weights in starts.items():
        scores[name] = scratch.judge_network(scratch.finish(model, weights), everything)
    best = "centre" if centre is not None else min(starts, key=lambda name: scores[name])
    calibrated = calibrate(model) if calibrate is not None and scratch.follows else None
    if calibrated is not None:
        scratch.num_passes += 1
        scores["calibrated"] = scratch.judge_network(calibrated, everything)
    undone = scratch.scale_free() if best in ("blended", "structured") else ()
    whitened = Whitened.of(reception, starts[best], undone)

    def fit(positions: Tensor, settings: PosteriorSettings) -> Fit:
        return maximise(scratch, whitened, positions, num_examples=num_examples, settings=settings, seed=seed)

    guard = replace(settings, num_steps=settings.num_guard_steps)

    scores["posterior"] = sum(
        len(split.held_out)
        / num_examples
        * scratch.judge_network(scratch.finish(model, fit(split.fit, guard).weights), split.held_out)
        for split in splits
    )
    chosen = min(scores, key=lambda name: scores[name])
    if chosen == "received" or (chosen == "calibrated" and calibrated is not None):
        kept = with_weights(model if chosen == "received" or calibrated is None else calibrated, {})
        return Posterior(kept, chosen, scores, (), 0.0, scratch.num_passes)
    final = fit(everything, settings) if chosen == "posterior" else Fit(starts[chosen], (), 0.0)
    finished = scratch.finish(model, final.weights)
    return Posterior(finished, chosen, scores, final.losses, final.move, scratch.num_passes)


def _centres(
    model: nn.Module,
    reception: Reception,
    centre: Temperatures | GroupTemperatures | None,
    scratch: Scratch,
    normalisation: tuple[type[nn.Module], ...],
) -> dict[str, Weights]:
    """What the prior may be centred on, beside the weights as they came.

    BatchNorm undoes a layer's scale, and all that MMSE would shrink is the confidence of the head; there a structured
    prior of the convolutions is worth a look.
    """
    if centre is not None:
        return {"centre": reception.estimate(reception.denoisers(centre))}
    noise = reception.noise_variance if reception.noise is None else reception.noise
    if scratch.follows:
        layers = Reception.of(reception.weights, noise, groups="layerwise")
        maps = structured_denoisers(model, noise_variance=noise, normalisation=normalisation)
        return {"structured": _at_length(layers.estimate(maps), reception.weights)}
    whole = Reception.of(reception.weights, noise)
    return {"mmse": whole.estimate(whole.denoisers(MMSE))}


def _at_length(estimate: Weights, received: Weights) -> dict[str, Tensor]:
    """Each tensor stretched to the length of the received one: for the BatchNorm behind it the same, and for the steps.

    Their size follows the noise, which is part of the received length; on shorter weights they would be too long.
    """
    return {
        name: tensor * (received[name].norm() / tensor.norm()) if tensor.any() else tensor
        for name, tensor in estimate.items()
    }
