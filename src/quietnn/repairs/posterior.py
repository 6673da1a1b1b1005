"""Weights that maximise the posterior given all that the receiver holds: the noisy weights and labelled examples.

In units of the posterior standard deviation about MMSE, `u = (w - w_mmse) / s`, the objective is `sum of losses +
|u|^2 / 2` for every group alike, so one step size serves layers whose weights differ by orders of magnitude
(docs/how-it-works/posterior.md). Unlike the affine family, this adjusts every noisy weight by the labels.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.errors import check_is
from quietnn.evidence import Evidence, labelled
from quietnn.losses import Losses, Verdict, joined
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation, observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.beside.beside import beside_of
from quietnn.repairs.beside.where import Where
from quietnn.repairs.choice import STANDARD_ERRORS, by_chance
from quietnn.repairs.fitting.scratch import Scratch
from quietnn.repairs.fitting.starts import Start, prepare, start_at, starts_beside, starts_of
from quietnn.repairs.fitting.whitened import DEFAULT, Fit, PosteriorSettings, in_mini_batches
from quietnn.repairs.fitting.within import maximise_where
from quietnn.repairs.grouped import grouped
from quietnn.repairs.rounding import are_rounded
from quietnn.score import Split, folds
from quietnn.targets import with_weights
from quietnn.variants import Variants, how_far, look_like_images, shifted

_NUM_FOLDS = 2
_PARTS_OF_A_FOLD = 5


@torch.inference_mode(False)
def posterior(
    what: object,
    inputs: object,
    labels: object = None,
    *,
    noise_variance: NoiseVariance | None = None,
    wnr_db: float | None = None,
    loss: Losses | None = None,
    augment: Variants = None,
    teacher: nn.Module | None = None,
    trainable: str = "weights",
    rank: int | None = None,
    budget: float | None = None,
    settings: PosteriorSettings = DEFAULT,
    seed: int = 0,
) -> Repaired:
    """Find the weights that maximise the posterior given the received weights and labelled examples.

    Each half of the examples gets a fit, which is judged on the other half beside the received network and repairs that
    need no labels. If one of these is better by more than two standard errors, it is returned. Otherwise the fit is
    repeated on all examples (docs/how-it-works/posterior.md).

    Args:
        what: the network as received.
        inputs: examples, about a hundred, in any form of `Evidence`.
        labels: class numbers, or what else `loss` compares outputs with.
        noise_variance: `sigma_z^2`, one for all weights or by tensor or group name.
        wnr_db: `sigma_w^2 / sigma_z^2` in decibels, in place of `noise_variance`.
        loss: a function of `(outputs, labels)` that returns one loss per example; by default cross-entropy.
        augment: random variants of the inputs that keep their labels, such as crops and flips; `False` for none. By
            default inputs that look like images are shifted by up to an eighth of their side, unless that makes the
            start worse by more than two standard errors.
        teacher: the clean network, in place of labels: its outputs are compared. Where weights stay, the fit starts
            where BatchNorms are matched to its own (`match`).
        trainable: what may move. `"weights"`: every noisy weight. Where these cannot be rewritten, `"digital"`: gains
            and biases of normalisation layers, all other biases, and a factor for each output of each matrix; or
            `"adapter"`: all this, and a low-rank addition beside each matrix.
        rank: of the addition; 8, or less in a small network, when not given.
        budget: in place of a rank, the share of the network's parameters that may stand beside it.
        settings: how the maximum is sought.
        seed: of the split and of the augmentation.

    Returns:
        The network. In its details, `chosen` is `"posterior"`, or the start that the held-out examples preferred.
        `held_out_loss` is the mean loss of every candidate, for the fit on examples it did not see. `held_out` has
        loss and answer of the chosen one on each of these. `fit_loss` has the loss at each step of the final fit.
        `move` is how far the weights moved, in posterior standard deviations. Where weights stay, `beside` has what
        stands beside them, see `Beside`.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> posterior(network, torch.rand(20, 4), torch.arange(20) % 2, wnr_db=3.0).name
    'posterior'
    """
    observation = observe(what, noise_variance=noise_variance, wnr_db=wnr_db)
    evidence = labelled(inputs, labels, "posterior", loss=loss, augment=augment, teacher=teacher)
    where = Where(trainable, rank, budget)
    where.check(observation.received, observation.weights)
    check_is(settings, PosteriorSettings, "settings", "give settings=quietnn.PosteriorSettings(num_steps=32)")
    model, num_examples = observation.model, len(evidence)
    by_group = grouped(observation, "layerwise")
    splits = folds(num_examples, _NUM_FOLDS, seed=seed)
    if by_group.noise_variance == 0:
        return _result(observation, where, with_weights(model, {}), "received", None, None, 0.0)
    scratch = Scratch(observation, evidence, blended=True, digital=where.weights_stay)
    settings = in_mini_batches(settings, scratch.num_batches)
    guard = Guard(scratch, splits)
    chosen, start = _best_start(guard, observation, evidence.in_memory(), weights_stay=where.weights_stay)
    best = guard.best(("received", chosen))
    variants = _shift_images(guard, chosen, start, evidence, seed)
    whitened = prepare(scratch, start, by_group)

    def fit(positions: Tensor, settings: PosteriorSettings) -> Fit:
        return maximise_where(scratch, whitened, where, positions, settings=settings, seed=seed)

    short = replace(settings, num_steps=settings.num_guard_steps)
    guard.judge_fits("posterior", lambda positions: scratch.finish(start.network, fit(positions, short).weights))
    is_worse = guard.is_clearly_better(best, "posterior", standard_errors=STANDARD_ERRORS)
    final = None if is_worse else fit(torch.arange(num_examples), settings)
    if final is None or not final.move:
        kept = with_weights(model if best == "received" else start.network, {})
        return _result(observation, where, kept, best, guard, None, scratch.num_passes)
    finished = scratch.finish(start.network, final.weights)
    return _result(observation, where, finished, "posterior", guard, final, scratch.num_passes, **variants)


def chosen_start(scratch: Scratch, observation: Observation[Any, Any], evidence: Evidence, *, seed: int = 0) -> Start:
    """The network that the posterior would start from: of all that needs no labels, the one that labels like best."""
    guard = Guard(scratch, folds(len(evidence), _NUM_FOLDS, seed=seed))
    return _best_start(guard, observation, evidence.in_memory(), weights_stay=False)[1]


def _best_start(
    guard: "Guard", observation: Observation[Any, Any], evidence: Evidence, *, weights_stay: bool
) -> tuple[str, Start]:
    """The start of the smallest loss and its name; they are made and judged one by one, and only the best is kept."""
    scratch = guard.scratch
    guard.judge("received", observation.model)
    best: tuple[str, Start] | None = None
    make = starts_beside if weights_stay else starts_of
    for name, start in make(observation, evidence, scratch):
        guard.judge(name, start.network)
        if best is None or guard.best((best[0], name)) == name:
            best = name, start
    assert best is not None  # there always is one: the received weights with the examples' statistics
    if "blended" not in guard.mean_losses and are_rounded(observation):
        # Calibration counts on noise. Where the error is none, the examples' own statistics may be better.
        model, received = observation.model, observation.weights
        guard.judge_fits("blended", lambda positions: scratch.finish(model, received, positions))
        if guard.is_clearly_better("blended", best[0]):
            return "blended", start_at(received, observation, scratch)
    return best


def _shift_images(guard: "Guard", name: str, start: Start, evidence: Evidence, seed: int) -> dict[str, str]:
    """Fit to shifted images where nobody spoke of variants and the start is as good on these; says so."""
    if evidence.augment is not None or evidence.mean_loss is not None:
        return {}
    known = evidence.in_memory()
    if not look_like_images(known.inputs):
        return {}
    moved = replace(known, inputs=shifted(known.inputs, torch.Generator().manual_seed(seed)))
    if guard.loses_on(moved, name, start.network, standard_errors=STANDARD_ERRORS):
        return {}
    guard.scratch.augment_by(shifted)
    return {"augment": how_far(known.inputs)}


def _result(
    observation: Observation[Any, Any],
    where: Where,
    model: nn.Module,
    chosen: str,
    guard: "Guard | None",
    fit: Fit | None,
    passes: float,
    **more: str,
) -> Repaired:
    fit = fit or Fit({}, (), 0.0)
    held_out_loss = {} if guard is None else guard.mean_losses
    details = {"chosen": chosen, "held_out_loss": held_out_loss, "fit_loss": fit.losses, "move": fit.move, **more}
    if guard is not None:
        details["held_out"] = guard.verdicts[chosen]
    if not where.weights_stay:
        return Repaired(model, "posterior", passes, details)
    details["beside"] = beside_of(observation, model, fit.added)
    return Repaired(model, f"posterior_{where.trainable}", passes, details)


class Guard:
    """Networks side by side on labelled examples, those that were fitted to some of them on the others."""

    def __init__(self, scratch: Scratch, splits: Sequence[Split]) -> None:
        self.scratch = scratch
        self._splits = splits
        self._held_out = parts_of(splits)
        self._parts = [part for fold in self._held_out for part in fold]
        self._order = torch.cat(self._parts).argsort()
        self.verdicts: dict[str, Verdict] = {}

    def judge(self, name: str, network: nn.Module) -> None:
        """Judge a network that has seen no labels, on all examples."""
        self.verdicts[name] = self.scratch.judge_each(network, self._parts).at(self._order)

    def judge_fits(self, name: str, fit: Callable[[Tensor], nn.Module]) -> None:
        """Judge a way to fit networks to positions: each split by the network that did not see it."""
        folds = zip(self._splits, self._held_out, strict=True)
        found = joined([self.scratch.judge_each(fit(split.fit), parts) for split, parts in folds])
        self.verdicts[name] = found.at(self._order)

    def loses_on(self, variants: Evidence, name: str, network: nn.Module, *, standard_errors: float) -> bool:
        """Whether a network that was judged is worse on variants of the examples, by more than so many errors."""
        verdict = self.scratch.judge_each(network, self._parts, variants).at(self._order)
        losses = verdict.losses - self.verdicts[name].losses
        return not float(losses.mean()) <= standard_errors * by_chance(losses)

    @property
    def mean_losses(self) -> dict[str, float]:
        """The mean loss of everything that was judged."""
        return {name: float(verdict.losses.mean()) for name, verdict in self.verdicts.items()}

    def best(self, names: Iterable[str]) -> str:
        """The one with the smallest mean loss."""
        return min(names, key=self.mean_losses.__getitem__)

    def is_clearly_better(self, name: str, other: str, *, standard_errors: float = 1.0) -> bool:
        """Whether one has the smaller loss, by more than so many standard errors."""
        return is_clearly_better(self._losses(name), self._losses(other), self._parts, standard_errors=standard_errors)

    def _losses(self, name: str) -> Tensor:
        """The mean loss on each part."""
        return torch.stack([self.verdicts[name].losses[part].mean() for part in self._parts])


def parts_of(splits: Sequence[Split]) -> list[list[Tensor]]:
    """The held-out positions of each split in a few parts, so that there are losses to compare and tell an error from.

    >>> [[len(part) for part in parts] for parts in parts_of(folds(21, 2, seed=0))]
    [[3, 2, 2, 2, 2], [2, 2, 2, 2, 2]]
    """
    return [list(split.held_out.tensor_split(min(_PARTS_OF_A_FOLD, len(split.held_out)))) for split in splits]


def mean_loss(losses: Tensor, parts: Sequence[Tensor]) -> float:
    """The mean loss of all examples from the mean losses of parts of them."""
    return sum(float(loss) * len(part) for loss, part in zip(losses, parts, strict=True)) / sum(map(len, parts))


def is_clearly_better(losses: Tensor, others: Tensor, parts: Sequence[Tensor], *, standard_errors: float = 1.0) -> bool:
    """Whether some losses are smaller than others by more than their difference may be by chance.

    >>> parts, some = [torch.arange(2)] * 4, torch.tensor([1.0, 2.0, 1.0, 2.0])
    >>> is_clearly_better(some - 0.1, some, parts), is_clearly_better(some, some, parts)
    (True, False)
    """
    other = mean_loss(others, parts)
    if not math.isfinite(other):
        return True
    gap = other - mean_loss(losses, parts)
    return gap > 0 and gap > standard_errors * float((losses - others).std()) / math.sqrt(len(parts))
