"""Weights adjusted without labels: the network is made to be sure of its inputs again.

A clean classifier is sure of most inputs of its kind and, where classes are equally common, uses all of them alike.
Noise takes both away. With `p_i` the probabilities of input `i` and `p` their mean over the inputs,

    mean_i H(p_i) + max(0, KL(p || shares) - (K - 1) / (2 n))

is smallest for a network that is sure of every input and whose `K` classes have the shares that they should have, up to
what `n` inputs differ from them by chance: `2 n KL` is chi-square with `K - 1` degrees of freedom, and a sample that is
made even is made wrong. But for that it is the information that the outputs hold about the inputs, with its sign
changed (Krause, Perona and Gomes 2010; Liang, Hu and Feng 2020 adapt networks by it). It takes the place of the loss in
the posterior (`quietnn.repairs.posterior`), where noise and prior hold the weights where they belong.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, check_finite, check_inputs, outputs_of, take
from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.repairs.branches import branches_if_any
from quietnn.repairs.calibrated_starts import calibrated_starts, scale_is_undone
from quietnn.repairs.fitting.scratch import Augment, Loss, Scratch
from quietnn.repairs.fitting.starts import Start, given_starts, prepare
from quietnn.repairs.fitting.whitened import DEFAULT, PosteriorSettings, maximise, wide
from quietnn.repairs.grouped import Reception
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES


@dataclass(frozen=True)
class SelfTrained:
    """The network that is sure of its inputs, and how it came about.

    Attributes:
        model: the network, a copy of the one given.
        start: what the steps began from: `"structured"`, `"calibrated"`, `"branches"` or `"received"`.
        fit_loss: mean loss at each step; nothing where there is no noise.
        move: root mean square of the steps' way, in posterior standard deviations.
        num_passes: cost in forward passes over the inputs, a backward pass counting two.
    """

    model: nn.Module
    start: str
    fit_loss: tuple[float, ...]
    move: float
    num_passes: float


@torch.inference_mode(False)
def self_train(
    model: nn.Module,
    inputs: Inputs,
    *,
    noise_variance: NoiseVariance,
    class_shares: Tensor | None = None,
    augment: Augment | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
    normalisation: tuple[type[nn.Module], ...] = NORMALISATION_TYPES,
) -> SelfTrained:
    """Adjust every noisy weight of a classifier so that it is sure of some inputs; no labels.

    It begins at the network under the structured prior, calibrated (without convolutions: calibrated; with layers that
    normalise each input: MMSE of the branches; with neither: as it came), and takes the steps of the posterior. Nothing
    is held out, for there is nothing to judge by: use it where noise has taken much and classes are as common as said.

    Args:
        model: the network as received; it stays as it is.
        inputs: what the network is for, about 100.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or layer name.
        class_shares: how common each class is among the inputs; all alike when not given. If that is wrong, so are the
            weights.
        augment: random variants of the inputs that keep their classes, such as crops and flips.
        settings: of the steps.
        seed: of the augmentation.
        normalisation: module types whose parameters carry no noise.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> self_train(network, torch.rand(20, 4), noise_variance=0.01).start
    'calibrated'
    """
    num_inputs = check_inputs(inputs)
    check_finite(inputs)
    loss = confidence_loss(inputs, class_shares=class_shares, augment=augment)
    received = noisy_weights(model, normalisation=normalisation)
    reception = Reception.of(received, noise_variance, groups="layerwise")
    if reception.noise_variance == 0:
        return SelfTrained(with_weights(model, {}), "received", (), 0.0, 0.0)
    scratch = Scratch(model, loss, num_inputs, blended=True, normalisation=normalisation)
    places = {"received": Start(model, received)}
    if scratch.follows:
        networks = calibrated_starts(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
        scratch.num_passes += len(networks)
        places |= given_starts(networks, model, received)
    elif scale_is_undone(model, normalisation):
        denoised = branches_if_any(
            model,
            inputs,
            noise_variance=noise_variance,
            balanced_classes=class_shares is None,
            normalisation=normalisation,
        )
        scratch.num_passes += 1
        if denoised is not None:
            places["branches"] = Start(denoised, noisy_weights(denoised, noisy=tuple(received)))
    name, start = list(places.items())[-1]  # the most elaborate of those that there are
    fit = maximise(
        scratch,
        prepare(scratch, start, reception),
        torch.arange(num_inputs),
        num_examples=num_inputs,
        settings=settings,
        seed=seed,
    )
    return SelfTrained(scratch.finish(start.network, fit.weights), name, fit.losses, fit.move, scratch.num_passes)


def confidence_loss(inputs: Inputs, *, class_shares: Tensor | None = None, augment: Augment | None = None) -> Loss:
    """The mean entropy of a classifier's outputs, and how far their mean is from the classes' shares, beyond chance.

    Args:
        inputs: a tensor, or tensors passed by keyword.
        class_shares: shape (classes,), positive, of sum 1; all alike when not given.
        augment: variants of the inputs to fit to.

    >>> loss = confidence_loss(torch.tensor([[9.0, -9.0], [-9.0, 9.0]]))
    >>> round(float(loss(nn.Identity(), torch.arange(2), None)), 3)              # sure, and both classes are used
    0.0
    >>> round(float(loss(nn.Identity(), torch.tensor([0, 0]), None)), 4)         # sure, of one class: log 2 - 1 / 4
    0.4431
    """
    shares = None if class_shares is None else _checked(class_shares)

    def loss(network: nn.Module, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        chosen = take(inputs, positions)
        if augment is not None and generator is not None and isinstance(chosen, Tensor):
            chosen = augment(chosen, generator)
        logits = outputs_of(network, chosen)
        if logits.dim() != 2 or logits.shape[1] < 2 or (shares is not None and len(shares) != logits.shape[1]):
            expected = "two classes or more" if shares is None else f"the {len(shares)} classes of class_shares"
            raise InvalidConfig(
                f"the network's outputs have shape {tuple(logits.shape)}; self-training needs (examples, classes) "
                f"with {expected}"
            )
        probabilities = wide(logits).softmax(1)
        entropy: Tensor = torch.special.entr(probabilities.clamp_min(_TINY)).sum(1).mean()
        mean = probabilities.mean(0)
        expected_shares = torch.full_like(mean, 1 / len(mean)) if shares is None else shares.to(mean)
        divergence = (mean * (mean.clamp_min(_TINY) / expected_shares).log()).sum()
        by_chance = (len(mean) - 1) / (2 * len(logits))
        return entropy + (divergence - by_chance).clamp_min(0)

    return loss


_TINY = 1e-12


def _checked(shares: Tensor) -> Tensor:
    if not isinstance(shares, Tensor) or shares.dim() != 1 or not bool((shares > 0).all()):
        raise InvalidConfig("class_shares must be a tensor with a positive share for every class")
    if abs(float(shares.sum()) - 1) > 1e-3:
        raise InvalidConfig(f"class_shares add up to {float(shares.sum()):g}, not to 1; divide them by their sum")
    return shares
