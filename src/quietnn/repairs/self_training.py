"""Weights adjusted without labels: the network is made sure of its inputs again (docs/how-it-works/self-training.md).

With `p_i` the probabilities of input `i`, `p` their mean over the `n` inputs and `K` classes,

    mean_i H(p_i) + max(0, KL(p || shares) - (K - 1) / (2 n))

takes the place of the loss in the posterior, where noise and prior hold the weights where they belong.
"""

from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, in_evaluation, outputs_of, take
from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Evidence, some_inputs
from quietnn.losses import Loss
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation, observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured
from quietnn.repairs.beside.beside import beside_of
from quietnn.repairs.beside.where import Where
from quietnn.repairs.branches import denoise_branches
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import Start, as_start, in_one_pass, prepare
from quietnn.repairs.fitting.whitened import DEFAULT, Fit, PosteriorSettings, in_mini_batches
from quietnn.repairs.fitting.within import maximise_where
from quietnn.repairs.grouped import grouped
from quietnn.repairs.head import centre_head
from quietnn.repairs.kinds import has_kernels, normalises_inputs
from quietnn.targets import with_weights
from quietnn.variants import Variants
from quietnn.watching.batch_moments import wide


@torch.inference_mode(False)
def self_train(
    what: object,
    inputs: object,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    class_shares: Tensor | Literal["estimated"] | None = None,
    augment: Variants = None,
    trainable: str = "weights",
    rank: int | None = None,
    budget: float | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
) -> Repaired:
    """Adjust the noisy weights of a classifier until it is sure of some inputs, without labels.

    It takes the steps of the posterior. The start is the network under the structured prior, calibrated. Without
    convolutions it is the calibrated network. With layers that normalise each input it is the MMSE of the branches, and
    with neither it is the received network. Without labels the result is not tested: use it if noise has done much
    damage and the classes are as common as stated.

    Args:
        what: the network as received.
        inputs: what the network is for, 100 or better 1,000, in any form of `Evidence`. More than 100 are taken in
            mini-batches.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        class_shares: how common each class is among the inputs; equal by default. Wrong shares give wrong weights.
            `"estimated"` takes the mean outputs of the start: better than equal ones where these are wrong and noise
            is moderate, worse in strong noise.
        augment: random variants of the inputs that keep their classes, such as crops and flips.
        trainable: what may move, `"weights"`, `"digital"` or `"adapter"`, as in `posterior`.
        rank: of the additions of an adapter.
        budget: in place of a rank, the share of the network's parameters that may stand beside it.
        settings: of the steps.
        seed: of the augmentation.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> self_train(network, torch.rand(20, 4), noise_variance=0.01).details["start"]
    'calibrated'
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = some_inputs(inputs, "self_train", augment=augment)
    check_is(settings, PosteriorSettings, "settings", "give settings=quietnn.PosteriorSettings(num_steps=32)")
    where = Where(trainable, rank, budget)
    where.check(observation.received, observation.weights)
    known = evidence.in_memory()
    num_inputs = len(known)
    told = None if isinstance(class_shares, str) else class_shares
    if isinstance(class_shares, str) and class_shares != "estimated":
        raise InvalidConfig(f"class_shares is {class_shares!r}; give a tensor of shares, or class_shares='estimated'")

    def judged(shares: Tensor | None) -> Evidence:
        loss = confidence_loss(known.inputs, class_shares=shares, augment=evidence.augment)
        return Evidence(mean_loss=loss, num_examples=num_inputs)

    by_group = grouped(observation, "layerwise")
    if by_group.noise_variance == 0:
        return _result(observation, where, with_weights(observation.model, {}), "received", None, 0.0)
    scratch = Scratch(observation, judged(told), blended=True, digital=where.weights_stay)
    name, start = _start(observation, known, scratch, where, are_balanced=class_shares is None)
    if class_shares is not None and told is None:
        scratch.judge_by(judged(_mean_outputs(start.network, known)))
        scratch.num_passes += 1
    whitened, positions = prepare(scratch, start, by_group), torch.arange(num_inputs)
    steps = in_mini_batches(settings, scratch.num_batches)
    fit = maximise_where(scratch, whitened, where, positions, settings=steps, kept=_KEPT, seed=seed)
    finished = scratch.finish(start.network, fit.weights)
    return _result(observation, where, finished, name, fit, scratch.num_passes)


def _result(
    observation: Observation[Any, Any], where: Where, model: nn.Module, start: str, fit: Fit | None, passes: float
) -> Repaired:
    fit = fit or Fit({}, (), 0.0)
    details: dict[str, Any] = {"start": start, "fit_loss": fit.losses, "move": fit.move}
    if where.weights_stay:
        details["beside"] = beside_of(observation, model, fit.added)
    return Repaired(model, "self_trained", passes, details)


def _start(
    observation: Observation[Any, Any], evidence: Evidence, scratch: Scratch, where: Where, *, are_balanced: bool
) -> tuple[str, Start]:
    """The most elaborate of the networks that need no labels, and its name."""
    model = observation.model
    if scratch.follows:
        make = calibrate_structured if has_kernels(model) and not where.weights_stay else calibrate
        made = in_one_pass(make, observation, evidence)
        scratch.num_passes += made.passes
        return made.name, as_start(made.model, observation, is_anchor=True)
    if normalises_inputs(model, observation.normalisation) and not where.weights_stay:
        with suppress(InvalidConfig):  # a normalisation that is never called
            branches = denoise_branches(observation, evidence).model
            with suppress(InvalidConfig):  # no head to centre
                if are_balanced:
                    centre_head(observation, branches, evidence)
            scratch.num_passes += 1
            return "branches", as_start(branches, observation)
    return "received", Start(model, observation.weights)


def _mean_outputs(network: nn.Module, known: Evidence) -> Tensor:
    """The mean probability of each class; one that never occurs has a share all the same, half an input's."""
    with in_evaluation(network):
        found = torch.cat([_probabilities(outputs_of(network, inputs), None) for inputs, _ in known.batches()])
    mean = found.mean(0).clamp_min(1 / (2 * len(found)))
    return mean / mean.sum()


def confidence_loss(inputs: Inputs, *, class_shares: Tensor | None = None, augment: Variants = None) -> Loss:
    """The mean entropy of a classifier's outputs, and how far their mean is from the classes' shares, beyond chance.

    >>> loss = confidence_loss(torch.tensor([[9.0, -9.0], [-9.0, 9.0]]))
    >>> round(float(loss(nn.Identity(), torch.arange(2), None)), 3)              # sure, and both classes are used
    0.0
    >>> round(float(loss(nn.Identity(), torch.tensor([0, 0]), None)), 4)         # sure, of one class: log 2 - 1 / 4
    0.4431
    """
    shares = None if class_shares is None else _checked(class_shares)

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        chosen = take(inputs, positions)
        if augment and generator is not None and isinstance(chosen, Tensor):
            chosen = augment(chosen, generator)
        probabilities = _probabilities(outputs_of(network, chosen), shares)
        entropy: Tensor = torch.special.entr(probabilities.clamp_min(_TINY)).sum(1).mean()
        mean = probabilities.mean(0)
        expected_shares = torch.full_like(mean, 1 / len(mean)) if shares is None else shares.to(mean)
        divergence = (mean * (mean.clamp_min(_TINY) / expected_shares).log()).sum()
        by_chance = (len(mean) - 1) / (2 * len(probabilities))
        return entropy + (divergence - by_chance).clamp_min(0)

    return loss


def _probabilities(logits: Tensor, shares: Tensor | None) -> Tensor:
    """Those of the classes; an error where outputs are none of classes, or not of those that were told of."""
    if logits.dim() != 2 or logits.shape[1] < 2 or (shares is not None and len(shares) != logits.shape[1]):
        expected = "two classes or more" if shares is None else f"the {len(shares)} classes of class_shares"
        raise InvalidConfig(
            f"the network's outputs have shape {tuple(logits.shape)}; self-training needs (examples, classes) "
            f"with {expected}"
        )
    return wide(logits).softmax(1)


_TINY = 1e-12

_KEPT = 0.5
"""The share of the way to the minimum that is gone. Nothing tells how much being sure is worth, from nothing (the
start) to all of it (the minimum): this is the middle (docs/how-it-works/self-training.md)."""


def _checked(shares: Tensor) -> Tensor:
    if not isinstance(shares, Tensor) or shares.dim() != 1 or not bool((shares > 0).all()):
        raise InvalidConfig("class_shares must be a tensor with a positive share for every class")
    if abs(float(shares.sum()) - 1) > 1e-3:
        raise InvalidConfig(f"class_shares add up to {float(shares.sum()):g}, not to 1; divide them by their sum")
    return shares
