"""The one call for a user who wants the network repaired with whatever there is."""

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from quietnn.batches import Inputs, call, check_finite, check_inputs, take
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.noise import NoiseVariance
from quietnn.noise_power.batch_norm import noise_power_from_batch_norm
from quietnn.repairs.auto_result import AutoResult, Tried
from quietnn.repairs.batchnorm.calibrate import calibrate
from quietnn.repairs.branches import branches_if_any
from quietnn.repairs.calibrated_starts import has_kernels, has_stored_statistics, scale_is_undone
from quietnn.repairs.candidates import (
    CANDIDATES,
    Candidate,
    Normalisation,
    Received,
)
from quietnn.repairs.choice import BASELINE, accuracy_of_choice, at_least, choose
from quietnn.repairs.denoise import denoise
from quietnn.repairs.fitting.scratch import Augment, Split, folds
from quietnn.repairs.grouped import Reception
from quietnn.repairs.labelled import Labelled, Losses, Verdict, cross_entropy
from quietnn.repairs.self_training import self_train
from quietnn.repairs.structured import calibrate_structured
from quietnn.targets import noisy_weights
from quietnn.watching.undisturbed import undisturbed
from quietnn.weights import NORMALISATION_TYPES, check_module

MAX_PASSES = 450.0
"""Enough for every candidate and for making the winner once more."""

_TOO_WEAK = (
    "too weak to be estimated, so the weights are as they came; noise_power_from_pilots and "
    "noise_power_from_receptions can tell weaker noise"
)
_SELF_TRAINING = 100
"""About how many passes training without labels takes."""

_NUM_FOLDS = 2
_SMALLEST = 8


def auto(
    model: nn.Module,
    *,
    noise_variance: NoiseVariance | None,
    inputs: Inputs | None = None,
    labels: Tensor | None = None,
    loss: Losses = cross_entropy,
    augment: Augment | None = None,
    balanced_classes: bool = False,
    max_passes: float = MAX_PASSES,
    seed: int = 0,
    normalisation: Normalisation = NORMALISATION_TYPES,
) -> AutoResult:
    """Repair a noisy network with whatever there is: nothing, some inputs, or some inputs with labels.

    - *Nothing*: MMSE where every scale is undone by a normalisation of each input (transformers), else the weights as
      they came: plain MMSE harms networks with BatchNorm.
    - *Inputs*: noise-aware calibration of BatchNorm, after the structured prior where there are convolutions; where
      each input is normalised, MMSE of the branches (`denoise_branches`); else as above. If classes are said to be
      balanced, the weights are then moved until the network is sure of the inputs (`self_train`).
    - *Inputs and labels*: every candidate is made twice, from half of the examples each time, and judged on the other
      half. The smallest loss wins, unless that of the weights as they came is within one standard error, and is made
      once more from all examples. A candidate that fails is recorded and passed over.

    Args:
        model: the network as received; it stays as it is.
        noise_variance: `sigma_z^2`, one number or by tensor. None means unknown: it is then estimated from the mismatch
            of BatchNorm, which needs inputs (`noise_power_from_pilots` and `noise_power_from_receptions` are better
            where they apply).
        inputs: what the network is for, about 100: a tensor, or a dict of tensors passed by keyword.
        labels: class numbers, or whatever `loss` compares outputs with.
        loss: `(outputs, labels)` to one loss for each example; cross-entropy when not given.
        augment: random variants of the inputs that keep their labels, such as crops and flips.
        balanced_classes: say that all classes are about equally common among inputs without labels.
        max_passes: candidates that would cost more, in forward passes over the examples, are left out.
        seed: of the halves, of orders and of augmentation.
        normalisation: module types whose parameters carry no noise.

    Returns:
        The network with what was tried, what won, the accuracy to expect and the cost. Without noise the network comes
        back bit for bit.

    >>> network = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    >>> auto(network, noise_variance=0.01).chosen, auto(nn.Linear(4, 2), noise_variance=0.01).chosen
    ('mmse', 'ml')
    """
    check_module(model, normalisation=normalisation)
    if labels is not None and inputs is None:
        raise InvalidConfig("labels came without inputs; give the inputs that they belong to")
    if inputs is not None:
        check_inputs(inputs)
        check_finite(inputs)
        with undisturbed(model), torch.no_grad():
            call(model, take(inputs, slice(2)))  # says what does not fit; a candidate that fails is passed over
    notes: list[str] = []
    if noise_variance is None:
        if inputs is None:
            raise InvalidConfig(
                "noise_variance is unknown and there is nothing to estimate it from; give inputs of a network with "
                "BatchNorm, or use noise_power_from_pilots or noise_power_from_receptions"
            )
        power = noise_power_from_batch_norm(model, inputs, normalisation=normalisation)
        noise_variance = power.variance
        notes.append(f"{power}: {'estimated, not told' if noise_variance else _TOO_WEAK}")
    if inputs is None or labels is None:
        if inputs is not None and balanced_classes and max_passes >= _SELF_TRAINING:
            return _self_trained(model, noise_variance, inputs, augment, seed, normalisation, tuple(notes))
        usable = inputs if max_passes >= 1 else None
        return _without_labels(model, noise_variance, usable, balanced_classes, normalisation, tuple(notes))
    examples = Labelled(inputs, labels, loss, augment)
    return auto_labelled(
        model,
        examples,
        noise_variance=noise_variance,
        max_passes=max_passes,
        seed=seed,
        normalisation=normalisation,
        notes=tuple(notes),
    )


def auto_labelled(
    model: nn.Module,
    examples: Labelled,
    *,
    noise_variance: NoiseVariance,
    max_passes: float = MAX_PASSES,
    seed: int = 0,
    normalisation: Normalisation = NORMALISATION_TYPES,
    notes: tuple[str, ...] = (),
) -> AutoResult:
    """The same for labelled examples that say themselves how a network is run and judged on them."""
    if len(examples) < _SMALLEST:
        raise InvalidConfig(
            f"{len(examples)} labelled examples are too few to choose by; give {_SMALLEST} or more, or leave labels out"
        )
    received = Received(model, noise_variance, normalisation, examples, seed)
    is_clean = received.reception("whole").noise_variance == 0
    splits = folds(len(examples), _NUM_FOLDS, seed=seed)
    trials = _Trials(received, splits, max_passes)
    for candidate in CANDIDATES:
        if is_clean and candidate.name != BASELINE:
            break
        if candidate.applies(model):
            trials.run(candidate)
    chosen, network = trials.make_winner()
    accuracy = accuracy_of_choice(trials.verdicts, [split.held_out for split in splits])
    has_accuracy = not math.isnan(accuracy)
    return AutoResult(
        model=copy.deepcopy(network) if network is model else network,
        chosen=chosen,
        tried=tuple(trials.tried),
        expected_accuracy=accuracy if has_accuracy else None,
        accuracy_at_least=at_least(accuracy, len(examples)) if has_accuracy else None,
        num_passes=trials.num_passes,
        notes=(*notes, *trials.notes, *_about(is_clean, chosen, is_told=not notes)),
    )


class _Trials:
    """Candidates made and judged so far."""

    def __init__(self, received: Received, splits: list[Split], max_passes: float) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.tried: list[Tried] = []
        self.notes: list[str] = []
        self.num_passes = 0.0
        self._received = received
        self._splits = splits
        self._max_passes = max_passes
        self._parts = [replace(received, examples=received.examples.take(split.fit)) for split in splits]

    def run(self, candidate: Candidate) -> None:
        """Make a candidate from each part and judge it on what the part leaves out."""
        reason = self._reason_to_skip(candidate)
        before = self.num_passes
        if reason is None:
            try:
                verdict = self._cross_fitted(candidate)
            except (QuietnnError, RuntimeError) as error:  # torch has no error of its own for what it cannot do
                if candidate.name == BASELINE:
                    raise  # not the candidate's fault: the examples or the loss do not fit the network
                reason = f"failed: {error}"
        spent = self.num_passes - before
        if reason is not None:
            self.tried.append(Tried(candidate.name, num_passes=spent, failed=reason))
            return
        self.verdicts[candidate.name] = verdict
        loss, accuracy = float(verdict.losses.mean()), float(verdict.right.mean())
        self.tried.append(Tried(candidate.name, loss, accuracy, spent))

    def make_winner(self) -> tuple[str, nn.Module]:
        """The winner, made from all examples; where that fails, the next one."""
        left = dict(self.verdicts)
        makers = {candidate.name: candidate.make for candidate in CANDIDATES}
        while (chosen := choose(left)) != BASELINE:
            try:
                made = makers[chosen](self._received)
            except (QuietnnError, RuntimeError) as error:
                self.notes.append(f"{chosen} was the best, and failed on all examples: {error}")
                del left[chosen]
                continue
            self.num_passes += made.num_passes
            return chosen, made.model
        return BASELINE, self._received.model

    def _cross_fitted(self, candidate: Candidate) -> Verdict:
        num_examples = len(self._received.examples)
        losses, right = (torch.zeros(num_examples, dtype=torch.float64) for _ in range(2))
        for part, split in zip(self._parts, self._splits, strict=True):
            made = candidate.make(part)
            self.num_passes += made.num_passes * len(split.fit) / num_examples + len(split.held_out) / num_examples
            verdict = self._received.examples.take(split.held_out).judge(made.model)
            losses[split.held_out], right[split.held_out] = verdict.losses, verdict.right
        return Verdict(losses, right)

    def _reason_to_skip(self, candidate: Candidate) -> str | None:
        if self.num_passes + 2 * candidate.cost > self._max_passes:
            return f"not tried: about {2 * candidate.cost:.0f} passes, with {self._max_passes:.0f} allowed in all"
        if candidate.cost > 20 and any(bool((verdict.right == 1).all()) for verdict in self.verdicts.values()):
            return "not tried: a simpler one has every held-out example right"
        return None


def _self_trained(
    model: nn.Module,
    noise_variance: NoiseVariance,
    inputs: Inputs,
    augment: Augment | None,
    seed: int,
    normalisation: Normalisation,
    notes: tuple[str, ...],
) -> AutoResult:
    """Inputs whose classes are balanced: as without labels, and on from there."""
    try:
        trained = self_train(
            model, inputs, noise_variance=noise_variance, augment=augment, seed=seed, normalisation=normalisation
        )
    except (QuietnnError, RuntimeError) as error:
        notes = (*notes, f"self-training failed: {error}")
        return _without_labels(model, noise_variance, inputs, False, normalisation, notes)
    if not trained.move:  # no noise, or outputs that are not finite
        return _without_labels(model, noise_variance, inputs, False, normalisation, notes)
    note = "no labels, so nothing could be judged; the network was made sure of inputs whose classes are balanced"
    tried = tuple(map(Tried, (BASELINE, trained.start, "self_trained")))
    return AutoResult(trained.model, "self_trained", tried, None, None, trained.num_passes, (*notes, note))


def _without_labels(
    model: nn.Module,
    noise_variance: NoiseVariance,
    inputs: Inputs | None,
    balanced_classes: bool,
    normalisation: Normalisation,
    notes: tuple[str, ...],
) -> AutoResult:
    """The choice that needs no labels: by the kind of network alone."""

    def result(network: nn.Module, chosen: str, num_passes: float, *more: str) -> AutoResult:
        names = dict.fromkeys([BASELINE, chosen])
        return AutoResult(network, chosen, tuple(map(Tried, names)), None, None, num_passes, (*notes, *more))

    if Reception.of(noisy_weights(model, normalisation=normalisation), noise_variance).noise_variance == 0:
        return result(copy.deepcopy(model), BASELINE, 0.0, *_about(True, BASELINE, is_told=not notes))
    if inputs is not None and has_stored_statistics(model):
        name, repair = ("structured", calibrate_structured) if has_kernels(model) else ("calibrated", calibrate)
        try:
            repaired = repair(model, inputs, noise_variance=noise_variance, normalisation=normalisation)
        except QuietnnError as error:
            return result(copy.deepcopy(model), BASELINE, 1.0, f"calibration failed: {error}")
        if _are_equal(repaired, model):
            return result(repaired, BASELINE, 1.0, "every BatchNorm is called more than once: none can be calibrated")
        return result(repaired, name, 1.0, "no labels, so nothing could be judged; calibration needs none")
    is_undone = scale_is_undone(model, normalisation)
    if inputs is not None and is_undone:
        try:
            branches = branches_if_any(
                model,
                inputs,
                noise_variance=noise_variance,
                balanced_classes=balanced_classes,
                normalisation=normalisation,
            )
        except (QuietnnError, RuntimeError) as error:
            return result(copy.deepcopy(model), BASELINE, 1.0, f"MMSE of branches failed: {error}")
        if branches is not None:
            about = "each input is normalised, so MMSE up to the last of that is safe"
            return result(branches, "branches", float(balanced_classes), about)
    if is_undone:
        denoised = denoise(model, noise_variance=noise_variance, normalisation=normalisation)
        return result(denoised, "mmse", 0.0, "every scale is undone by a normalisation of each input, so MMSE is safe")
    why = (
        "plain MMSE harms networks with BatchNorm; some inputs, without labels, would allow calibration"
        if has_stored_statistics(model)
        else "nothing is known to help this kind of network without labels; the weights are as they came"
    )
    return result(copy.deepcopy(model), BASELINE, 0.0, why)


def _are_equal(one: nn.Module, other: nn.Module) -> bool:
    others = other.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in one.state_dict().items())


def _about(is_clean: bool, chosen: str, *, is_told: bool) -> tuple[str, ...]:
    if is_clean:
        return ("there is no noise, so there is nothing to repair",) if is_told else ()
    if chosen == BASELINE:
        return ("nothing was better than the weights as they came by more than chance allows",)
    return ()
