"""The repair for a user who has what there is: it picks among the others."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from quietnn.batches import call, take
from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.evidence import Evidence
from quietnn.losses import Verdict
from quietnn.methods import NEEDS
from quietnn.noise_power.batch_norm import noise_power_from_batch_norm
from quietnn.observation import Observation
from quietnn.repairs.base import REPAIRS, Repair, Repaired
from quietnn.repairs.choice import BASELINE, accuracy_of_choice, at_least, choose
from quietnn.score import SubsetScore, folds
from quietnn.watching.makers import undisturbed

MAX_PASSES = 450.0
"""Enough for every candidate and for making the winner once more."""

FEWEST_EXAMPLES = 8
"""Labelled examples below which a choice among repairs would be one by chance."""

_NUM_FOLDS = 2
_ELABORATE = 20
"""Passes from which a repair is not tried once a simpler one has every held-out example right."""


@dataclass(frozen=True)
class Tried:
    """One repair and what became of it."""

    name: str
    loss: float | None = None  # the mean on held-out examples, where it was judged
    accuracy: float | None = None  # on the same examples, where labels are class numbers
    passes: float = 0.0  # over all examples, a backward pass counting two
    failed: str | None = None  # why it could not be made, or was not tried

    def __str__(self) -> str:
        """A line of a table."""
        if self.loss is None:
            return f"{self.name:18s} {self.failed or 'not judged, for want of labels'}"
        accuracy = "" if self.accuracy is None else f"  accuracy {self.accuracy:6.1%}"
        return f"{self.name:18s} held-out loss {self.loss:7.3f}{accuracy}  {self.passes:5.0f} passes"


@dataclass(frozen=True)
class AutoReport:
    """Why `auto` chose what it chose.

    The expected accuracy is that of networks chosen in this way, on new examples. They were made from half of the
    examples, so one made from all does as well or better, as a rule.
    """

    chosen: str
    tried: tuple[Tried, ...]  # every repair that was looked at, from the simplest to the most elaborate
    expected_accuracy: float | None = None  # None without class labels
    accuracy_at_least: float | None = None  # the 97.5 % lower limit of that, and so of the network's own
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A table of the repairs, the choice and the notes."""
        lines = [f"{'*' if one.name == self.chosen else ' '} {one}" for one in self.tried]
        if self.expected_accuracy is not None and self.accuracy_at_least is not None:
            lines.append(
                f"expected accuracy {self.accuracy_at_least:.1%} or more (97.5 % sure; from half of the examples it "
                f"was {self.expected_accuracy:.1%})"
            )
        return "\n".join([*lines, *self.notes])


def auto(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    balanced_classes: bool = False,
    max_passes: float = MAX_PASSES,
    seed: int = 0,
) -> Repaired:
    """Repair a noisy network with whatever there is: nothing, some inputs, or some inputs with labels.

    - *Without labels*: the most elaborate repair that is known to do this kind of network no harm, else the received
      weights. A shrinkage that goes by the weights alone does harm somewhere (docs/auto.md), so inputs are needed.
    - *With labels*: every repair that `auto` may try is made twice, from half of the examples each time, and judged on
      the other half. The smallest loss wins, unless that of the received weights is within one standard error, and is
      made once more from all examples. A repair that fails is recorded and passed over.

    The arguments are those of `repair`. Where the noise is unknown, BatchNorm's mismatch tells it, which needs inputs.

    Returns:
        Details: `chosen`, `tried`, `expected_accuracy`, `accuracy_at_least`, `notes`, and all of them as a `report`.
        Without noise the network comes back bit for bit.
    """
    if evidence.has_inputs:
        with undisturbed(observation.model), torch.no_grad():
            call(observation.model, take(next(evidence.batches())[0], slice(2)))  # says what does not fit
    notes: tuple[str, ...] = ()
    if observation.as_received is not None:  # a gain that is known is undone in every network that is judged
        observation = observation.on(observation.received)
    if observation.noise_variance is None:
        observation, notes = _with_estimated_noise(observation, evidence)
    if not evidence.has_labels:
        return _without_labels(observation, evidence, balanced_classes, max_passes, seed, notes)
    return _with_labels(observation, evidence, max_passes, seed, notes)


def _with_labels(
    observation: Observation[Any, Any], evidence: Evidence, max_passes: float, seed: int, notes: tuple[str, ...]
) -> Repaired:
    """The choice by labels: every repair on the examples that it did not see."""
    num_examples, is_told = len(evidence), not notes
    if num_examples < FEWEST_EXAMPLES:
        raise InvalidConfig(
            f"{num_examples} labelled examples are too few to choose by; give {FEWEST_EXAMPLES} or more, or leave "
            "labels out"
        )
    if evidence.score is not None and not isinstance(evidence.score, SubsetScore):
        # It looks at all examples, those that are held out included.
        evidence = replace(evidence, score=None)
        notes = (*notes, "auto goes by the loss on held-out examples, not by the score; tune(score=...) goes by that")
    trials = _Trials(observation, evidence.in_memory(), max_passes, seed)
    is_clean = observation.mean_noise_variance == 0
    for row in REPAIRS.values():
        if row.name == BASELINE or (not is_clean and row.applies(observation) and row.by_auto(observation)):
            trials.run(row)
    name, winner = trials.make_winner()
    accuracy = accuracy_of_choice(trials.verdicts, [split.held_out for split in trials.splits])
    surely = None if accuracy is None else at_least(accuracy, num_examples)
    notes = (*notes, *trials.notes, *_about(is_clean, name, is_told=is_told))
    return _result(winner, trials.passes, AutoReport(name, tuple(trials.tried), accuracy, surely, notes))


def _with_estimated_noise(
    observation: Observation[Any, Any], evidence: Evidence
) -> tuple[Observation[Any, Any], tuple[str, ...]]:
    if not evidence.has_inputs:
        raise InvalidConfig(
            "the noise power is unknown and there is nothing to estimate it from; give it, repair(model, "
            "noise_variance=...), or inputs of a network with BatchNorm, or use noise_power_from_pilots or "
            "noise_power_from_receptions"
        )
    rule: dict[str, Any] = {"noisy": observation.noisy, "normalisation": observation.normalisation}
    power = noise_power_from_batch_norm(observation.model, evidence, **rule)
    note = "estimated, not told"
    if not power.variance:
        note = (
            "too weak to be estimated, so the weights are as received; noise_power_from_pilots and "
            "noise_power_from_receptions can tell weaker noise"
        )
    return observation.with_noise(power.variance), (f"{power}: {note}",)


class _Trials:
    """Repairs made and judged so far."""

    def __init__(self, observation: Observation[Any, Any], evidence: Evidence, max_passes: float, seed: int) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.tried: list[Tried] = []
        self.notes: list[str] = []
        self.passes = 0.0
        self._observation = observation
        self._evidence = evidence
        self._max_passes = max_passes
        self._seed = seed
        self.splits = folds(len(evidence), _NUM_FOLDS, seed=seed)
        self._parts = [(evidence.take(split.fit), evidence.take(split.held_out)) for split in self.splits]

    def run(self, row: Repair) -> None:
        """Make a repair from each part and judge it on what the part leaves out."""
        reason = self._reason_to_skip(row)
        before = self.passes
        if reason is None:
            try:
                verdict = self._cross_fitted(row)
            except (QuietnnError, RuntimeError) as error:  # torch has no error of its own for what it cannot do
                if row.name == BASELINE:
                    raise  # not the repair's fault: the examples or the loss do not fit the network
                reason = f"failed: {error}"
        spent = self.passes - before
        if reason is not None:
            self.tried.append(Tried(row.name, passes=spent, failed=reason))
            return
        self.verdicts[row.name] = verdict
        accuracy = None if verdict.right is None else float(verdict.right.mean())
        self.tried.append(Tried(row.name, float(verdict.losses.mean()), accuracy, spent))

    def make_winner(self) -> tuple[str, Any]:
        """The winner, made from all examples; where that fails, the next one."""
        left = dict(self.verdicts)
        while (chosen := choose(left)) != BASELINE:
            try:
                made = REPAIRS[chosen](self._observation, self._evidence, seed=self._seed)
            except (QuietnnError, RuntimeError) as error:
                self.notes.append(f"{chosen} was the best, and failed on all examples: {error}")
                del left[chosen]
                continue
            self.passes += made.passes
            return chosen, made.model
        return BASELINE, copy.deepcopy(self._observation.received)

    def _cross_fitted(self, row: Repair) -> Verdict:
        num_examples = len(self._evidence)
        losses = torch.zeros(num_examples, dtype=torch.float64)
        right: Tensor | None = torch.zeros(num_examples, dtype=torch.float64)
        for split, (part, rest) in zip(self.splits, self._parts, strict=True):
            made = row(self._observation, part, seed=self._seed)
            self.passes += (made.passes * len(split.fit) + len(split.held_out)) / num_examples
            verdict = rest.judge(made.model)
            losses[split.held_out] = verdict.losses
            if verdict.right is None:
                right = None
            elif right is not None:
                right[split.held_out] = verdict.right
        return Verdict(losses, right)

    def _reason_to_skip(self, row: Repair) -> str | None:
        if self.passes + 2 * row.cost > self._max_passes:
            return f"not tried: about {2 * row.cost:.0f} passes, with {self._max_passes:.0f} allowed in all"
        if row.cost > _ELABORATE and any(
            verdict.right is not None and bool((verdict.right == 1).all()) for verdict in self.verdicts.values()
        ):
            return "not tried: a simpler one has every held-out example right"
        return None


def _without_labels(
    observation: Observation[Any, Any],
    evidence: Evidence,
    balanced_classes: bool,
    max_passes: float,
    seed: int,
    notes: tuple[str, ...],
) -> Repaired:
    """The choice that needs no labels: by the kind of network alone."""
    model = observation.received
    tried, passes = [Tried(BASELINE)], 0.0
    if observation.mean_noise_variance == 0:
        report = AutoReport(BASELINE, tuple(tried), notes=(*notes, *_about(True, BASELINE, is_told=not notes)))
        return _result(copy.deepcopy(model), passes, report)
    has = "shares" if evidence.has_inputs and balanced_classes else "inputs" if evidence.has_inputs else "nothing"
    rows = [
        row
        for row in REPAIRS.values()
        if NEEDS.index(row.needs) <= NEEDS.index(has) and row.applies(observation) and row.unjudged(observation)
    ]
    for row in reversed(rows):
        if row.cost > max_passes:
            tried.append(Tried(row.name, failed=f"not tried: {row.cost:.0f} passes, with {max_passes:g} allowed"))
            continue
        try:
            made = row(observation, evidence, seed=seed)
        except (QuietnnError, RuntimeError) as error:
            tried.append(Tried(row.name, passes=row.cost, failed=f"failed: {error}"))
            passes += row.cost
            continue
        passes += made.passes
        if not _are_equal(made.model, model):
            why = "no labels, so nothing could be judged; this is known to do this kind of network no harm"
            if row.needs == "shares":
                why += ", if classes are balanced as you said"
            report = AutoReport(row.name, (*tried, Tried(row.name, passes=made.passes)), notes=(*notes, why))
            return _result(made.model, passes, report)
        tried.append(Tried(row.name, passes=made.passes, failed="changed nothing"))
    why = "nothing is known to help this network without labels and do no harm; the weights are as received"
    if len(tried) > 1:
        why = "no repair that is known to do this kind of network no harm could be made; the weights are as received"
    if not evidence.has_inputs:
        why += "; some inputs, without labels, may allow more: repair(model, inputs, ...)"
    return _result(copy.deepcopy(model), passes, AutoReport(BASELINE, tuple(tried), notes=(*notes, why)))


def _result(model: Any, passes: float, report: AutoReport) -> Repaired:
    details = {name: getattr(report, name) for name in AutoReport.__dataclass_fields__}
    return Repaired(model, report.chosen, passes, {**details, "report": report})


def _are_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, nn.Module):
        return False
    own, others = one.state_dict(), other.state_dict()
    return own.keys() == others.keys() and all(torch.equal(tensor, others[name]) for name, tensor in own.items())


def _about(is_clean: bool, chosen: str, *, is_told: bool) -> tuple[str, ...]:
    if is_clean:
        return ("there is no noise, so there is nothing to repair",) if is_told else ()
    if chosen == BASELINE:
        return ("no repair was better than the received weights by more than chance",)
    return ()
