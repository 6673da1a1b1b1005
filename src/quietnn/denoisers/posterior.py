"""Weights that maximise the posterior given all that the receiver holds: the noisy weights and labelled examples.

With a Gaussian prior `w ~ N(mu_w, sigma_w^2)` in each group, `r = w + z`, and a loss that is a negative log-likelihood,

    -log p(w | r, examples) = sum of losses + |w - r|^2 / (2 sigma_z^2) + |w - mu_w|^2 / (2 sigma_w^2) + constant

The two squares make one, `|w - w_mmse|^2 / (2 s^2)`, with `s^2 = sigma_w^2 sigma_z^2 / (sigma_w^2 + sigma_z^2)`. In
units of that posterior standard deviation, `u = (w - w_mmse) / s`, the objective is `sum of losses + |u|^2 / 2` for
every group alike, so one step size serves layers whose weights differ by orders of magnitude. Unlike the affine family,
this adjusts every noisy weight by the labels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.denoisers.affine import Temperatures, mmse
from quietnn.denoisers.denoise import denoise
from quietnn.denoisers.descent import descend
from quietnn.denoisers.evidence import Loss, Scratch, folds
from quietnn.denoisers.reception import GroupTemperatures, Reception
from quietnn.errors import InvalidConfig
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES, Partition, Weights, WeightStatistics


@dataclass(frozen=True)
class PosteriorSettings:
    """How the maximum is sought.

    Attributes:
        num_steps: gradients taken on all examples.
        step_size: peak step of every weight, relative to the radius of the trust region, see `trust_radius`.
        prior: weight of the Gaussian terms; 1 is the posterior, less trusts the examples more.
        num_folds: parts of the examples, each of which judges a fit on the others.
        blended: BatchNorm follows the weights, see `quietnn.denoisers.blended_norm`; otherwise its statistics stay.
    """

    num_steps: int = 23
    step_size: float = 0.6
    prior: float = 0.3
    num_folds: int = 2
    blended: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if self.num_steps < 1:
            raise InvalidConfig(f"num_steps is {self.num_steps}; it must be 1 or more")
        if not 0 < self.step_size < math.inf:
            raise InvalidConfig(f"step_size is {self.step_size}; it must be positive, relative to the trust radius")
        if not 0 <= self.prior < math.inf:
            raise InvalidConfig(f"prior is {self.prior}; it must be zero or more, 1 for the posterior itself")


DEFAULT = PosteriorSettings()


@dataclass(frozen=True)
class Posterior:
    """The network of largest posterior, and the evidence for it.

    Attributes:
        model: the network, a copy of the one given.
        chosen: `"posterior"`, or the start that the held-out examples preferred: `"received"` (as it came),
            `"calibrated"` (with blended BatchNorm statistics) or `"centre"`.
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


@dataclass(frozen=True)
class Whitened:
    """The Gaussian part of the posterior: `w = centre + spread u`, `u ~ N(0, 1)`, tensor by tensor."""

    centre: Weights
    spread: Mapping[str, float]

    @classmethod
    def of(cls, reception: Reception, centre: Temperatures | GroupTemperatures | None = None) -> "Whitened":
        """Centre and spread of `p(w | r)`; a group without signal sits at its centre and has no spread.

        Without temperatures, the centre is MMSE of the model as a whole: a multiplier common to all layers keeps
        their proportions, which the network was trained with.
        """
        spread = {}
        for group, members in reception.groups.items():
            theta = mmse(reception.statistics[group], reception.noise_variance).theta
            # s^2 = theta sigma_z^2 with MMSE's theta, which is right where sigma_w^2 = 0 too
            spread.update(dict.fromkeys(members, math.sqrt(theta * reception.noise_variance)))
        if centre is None:
            return cls(denoise(reception.weights, noise_variance=reception.noise_variance, noisy=tuple(spread)), spread)
        return cls(reception.estimate(reception.denoisers(centre)), spread)

    @torch.no_grad()
    def weights(self, u: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights at `u`."""
        return {name: torch.add(centre, u[name], alpha=self.spread[name]) for name, centre in self.centre.items()}


def posterior(
    model: nn.Module,
    loss: Loss,
    num_examples: int,
    *,
    noise_variance: float,
    groups: str | Partition = "layerwise",
    statistics: Mapping[str, WeightStatistics] | None = None,
    centre: Temperatures | GroupTemperatures | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> Posterior:
    """The weights that maximise the posterior given the received weights and labelled examples.

    Fits on each half of the examples and judges the result on the other, beside the network as it came, the same with
    blended BatchNorm statistics, and the centre of the prior. If the fit wins, it is repeated on all examples; if not,
    the best start is returned: on the held-out evidence the result is never worse than the weights as they came.

    Args:
        model: the network as received; it stays as it is.
        loss: mean loss of the examples at some positions, see `Loss` and `classification_loss`.
        num_examples: how many examples the loss can address.
        noise_variance: `sigma_z^2`.
        groups: the groups that have a prior of their own.
        statistics: prior of each group; estimated from the received weights when not given.
        centre: temperatures of the estimate that the prior is centred on and the steps start from; MMSE of the model
            as a whole when not given.
        settings: how the maximum is sought.
        seed: of the split and of the augmentation.
        normalisation: module types whose parameters carry no noise.
    """
    received = noisy_weights(model, normalisation=normalisation)
    reception = Reception.of(received, noise_variance, groups=groups, statistics=statistics)
    splits = folds(num_examples, settings.num_folds, seed=seed)
    if noise_variance == 0:
        return Posterior(with_weights(model, {}), "received", {}, (), 0.0, 0.0)
    whitened = Whitened.of(reception, centre)
    scratch = Scratch(model, loss, num_examples, blended=settings.blended, normalisation=normalisation)

    def fit(positions: Tensor) -> Fit:
        return maximise(scratch, whitened, positions, num_examples=num_examples, settings=settings, seed=seed)

    everything = torch.arange(num_examples)
    starts = {"calibrated": received, "centre": whitened.centre}
    scores = {"received": scratch.judge_network(model, everything)}
    for name, weights in starts.items():
        scores[name] = scratch.judge_network(scratch.finish(model, weights), everything)
    scores["posterior"] = sum(
        len(split.held_out)
        / num_examples
        * scratch.judge_network(scratch.finish(model, fit(split.fit).weights), split.held_out)
        for split in splits
    )
    chosen = min(scores, key=lambda name: scores[name])
    if chosen == "received":
        return Posterior(with_weights(model, {}), chosen, scores, (), 0.0, scratch.num_passes)
    final = fit(everything) if chosen == "posterior" else Fit(starts[chosen], (), 0.0)
    finished = scratch.finish(model, final.weights)
    return Posterior(finished, chosen, scores, final.losses, final.move, scratch.num_passes)


@dataclass(frozen=True)
class Fit:
    """Where the steps ended, the mean loss at each of them, and the length of the way in root mean square of `u`."""

    weights: Weights
    losses: tuple[float, ...]
    move: float


def trust_radius(total_loss: float, num_weights: int) -> float:
    """How far the maximum can lie from the start, as a root mean square of `u`: `sqrt(2 L / d)`.

    At the maximum the objective is at most its value at the start: `|u|^2 / 2 <= L`, the sum of losses there. Large
    networks are therefore moved by less per weight, and so is any network that was nearly right.

    >>> trust_radius(total_loss=50.0, num_weights=10_000)
    0.1
    """
    return math.sqrt(2.0 * max(total_loss, 0.0) / max(num_weights, 1)) if math.isfinite(total_loss) else 0.0


def maximise(
    scratch: Scratch,
    whitened: Whitened,
    positions: Tensor,
    *,
    num_examples: int,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
) -> Fit:
    """Minimise `sum of losses + |u|^2 / 2` over `u`, from `u = 0`, on the examples at `positions`.

    The sum runs over `num_examples` whatever the number of positions: a fit on a part stands for one on all.
    """
    generator = torch.Generator().manual_seed(seed)
    names = list(whitened.centre)
    point = {name: torch.zeros_like(whitened.centre[name]) for name in names}

    def gradient() -> tuple[float, Sequence[Tensor]]:
        loss, gradients = scratch.gradient(whitened.weights(point), positions, generator)
        return loss, [
            gradients[name].mul_(num_examples * whitened.spread[name]).add_(point[name], alpha=settings.prior)
            for name in names
        ]

    first = gradient()
    num_moving = sum(int(torch.count_nonzero(direction)) for direction in first[1])
    radius = trust_radius(num_examples * first[0], num_moving)
    known = iter([first])
    losses = descend(
        [point[name] for name in names],
        lambda: next(known, None) or gradient(),
        num_steps=settings.num_steps,
        step_size=settings.step_size * radius,
    )
    square = math.fsum(float(tensor.double().square().sum()) for tensor in point.values())
    move = math.sqrt(square / sum(tensor.numel() for tensor in point.values()))
    return Fit(whitened.weights(point), losses, move)
