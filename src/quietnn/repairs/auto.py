"""The repair for a user who has what there is: it picks among the others."""

import copy
from dataclasses import replace
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
from quietnn.repairs.beside.beside import beside_of
from quietnn.repairs.beside.where import WEIGHTS, Where
from quietnn.repairs.choice import BASELINE, AutoReport, Tried, accuracy_of_choice, at_least, choose
from quietnn.repairs.kinds import has_stored_statistics
from quietnn.score import SubsetScore, folds
from quietnn.watching.makers import undisturbed

MAX_PASSES = 220.0
"""Enough for every candidate and for making the winner once more."""

FEWEST_EXAMPLES = 8
"""Labelled examples below which a choice among repairs would be one by chance."""

_KEPT = 1 - 1e-6
"""The share of a repair's change that has to be left where weights stay and nothing is judged."""

_NUM_FOLDS = 2
_ELABORATE = 20
"""Passes from which a repair is not tried once a simpler one has every held-out example right."""


def auto(
    observation: Observation[Any, Any],
    evidence: Evidence,
    *,
    balanced_classes: bool = False,
    max_passes: float = MAX_PASSES,
    seed: int = 0,
    where: Where = WEIGHTS,
) -> Repaired:
    """Repair a noisy network with whatever there is: nothing, some inputs, or some inputs with labels.

    - *Without labels*: the most elaborate repair that is known to do this kind of network no harm, else the received
      weights. A shrinkage that goes by the weights alone does harm somewhere, so inputs are needed
      (docs/how-it-works/auto.md).
    - *With labels*: every repair that `auto` may try is made twice, from half of the examples each time, and judged on
      the other half. The posterior judges itself in this way and is made once. Its fit wins unless another is better
      by two standard errors; then the smallest loss wins, unless that of the received weights is within one, and is
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
    if observation.noise_variance is None:
        observation, notes = _with_estimated_noise(observation, evidence)
    if not evidence.has_labels:
        return _without_labels(observation, evidence, balanced_classes, max_passes, seed, notes, where)
    return _with_labels(observation, evidence, max_passes, seed, notes, where)


def _with_labels(
    observation: Observation[Any, Any],
    evidence: Evidence,
    max_passes: float,
    seed: int,
    notes: tuple[str, ...],
    where: Where,
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
    trials = _Trials(observation, evidence.in_memory(), max_passes, seed, where)
    is_clean = observation.mean_noise_variance == 0
    rows = [row for row in REPAIRS.values() if row.applies(observation) and row.by_auto(observation)]
    for row in sorted(rows, key=lambda row: bool(row.behind)):
        if row.name == BASELINE or not (is_clean or row.behind in trials.verdicts):
            trials.run(row)
    winner = trials.make_winner()
    accuracy = accuracy_of_choice(trials.verdicts, [split.held_out for split in trials.splits], fitted=trials.fitted)
    surely = None if accuracy is None else at_least(accuracy, num_examples)
    variants = tuple(f"it was fitted to {words}" for words in (winner.details.get("augment"),) if words)
    notes = (*notes, *trials.notes, *variants, *_about(is_clean, winner.name, is_told=is_told))
    return _result(winner, trials.passes, AutoReport(winner.name, tuple(trials.tried), accuracy, surely, notes))


def _with_estimated_noise(
    observation: Observation[Any, Any], evidence: Evidence
) -> tuple[Observation[Any, Any], tuple[str, ...]]:
    if not (evidence.has_inputs and has_stored_statistics(observation.model)):
        raise InvalidConfig(
            "the noise power is unknown, and only inputs of a network with BatchNorm tell it; give it: "
            "noise_variance=1e-4 or wnr_db=6, or use noise_power_from_pilots or noise_power_from_receptions"
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

    def __init__(
        self, observation: Observation[Any, Any], evidence: Evidence, max_passes: float, seed: int, where: Where
    ) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.tried: list[Tried] = []
        self.notes: list[str] = []
        self.passes = 0.0
        self.fitted: list[str] = []
        self._finished: dict[str, Repaired] = {}
        self._observation = observation
        self._evidence = evidence
        self._max_passes = max_passes
        self._seed = seed
        self._where = where
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

    def make_winner(self) -> Repaired:
        """The winner, made from all examples; where that fails, the next one."""
        left = dict(self.verdicts)
        while (chosen := choose(left, fitted=self.fitted)) != BASELINE:
            if chosen in self._finished:
                return replace(self._finished[chosen], name=chosen)
            try:
                made = self._made(REPAIRS[chosen], self._evidence)
            except (QuietnnError, RuntimeError) as error:
                self.notes.append(f"{chosen} was the best, and failed on all examples: {error}")
                del left[chosen]
                continue
            self.passes += made.passes
            return replace(made, name=chosen)
        return _as_it_is(self._observation, self._where)

    def _made(self, row: Repair, evidence: Evidence) -> Repaired:
        if row.name == BASELINE:
            return _as_it_is(self._observation, self._where)
        return row(self._observation, evidence, seed=self._seed, where=self._where)

    def _cross_fitted(self, row: Repair) -> Verdict:
        if row.judges_itself:
            made = self._made(row, self._evidence)
            self.passes += made.passes
            self._finished[row.name] = made
            if made.details.get("chosen", row.name) == row.name:  # and not what it started from
                self.fitted.append(row.name)
            verdict: Verdict = made.details["held_out"]
            return verdict
        num_examples = len(self._evidence)
        losses = torch.zeros(num_examples, dtype=torch.float64)
        right: Tensor | None = torch.zeros(num_examples, dtype=torch.float64)
        for split, (part, rest) in zip(self.splits, self._parts, strict=True):
            made = self._made(row, part)
            self.passes += (made.passes * len(split.fit) + len(split.held_out)) / num_examples
            verdict = rest.judge(made.model)
            losses[split.held_out] = verdict.losses
            if verdict.right is None:
                right = None
            elif right is not None:
                right[split.held_out] = verdict.right
        return Verdict(losses, right)

    def _reason_to_skip(self, row: Repair) -> str | None:
        cost = row.cost if row.judges_itself else 2 * row.cost
        if self.passes + cost > self._max_passes:
            return f"not tried: about {cost:.0f} passes, with {self._max_passes:.0f} allowed in all"
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
    where: Where,
) -> Repaired:
    """The choice that needs no labels: by the kind of network alone."""
    model = observation.received
    tried, passes = [Tried(BASELINE)], 0.0
    if observation.mean_noise_variance == 0:
        report = AutoReport(BASELINE, tuple(tried), notes=(*notes, *_about(True, BASELINE, is_told=not notes)))
        return _result(_as_it_is(observation, where), passes, report)
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
            made = row(observation, evidence, seed=seed, where=where)
        except (QuietnnError, RuntimeError) as error:
            tried.append(Tried(row.name, passes=row.cost, failed=f"failed: {error}"))
            passes += row.cost
            continue
        passes += made.passes
        if made.details.get("kept", 1.0) < _KEPT:
            why = "it rewrites the weights, which stay, and nothing is known of what is left of it"
            tried.append(Tried(row.name, passes=made.passes, failed=why))
            continue
        if not _are_equal(made.model, model):
            by = (
                "and by the balanced classes you told of"
                if row.needs == "shares"
                else "where it did no harm in measurements"
            )
            why = f"no labels, so nothing was tested; chosen for this kind of network, {by}"
            report = AutoReport(row.name, (*tried, Tried(row.name, passes=made.passes)), notes=(*notes, why))
            return _result(made, passes, report)
        tried.append(Tried(row.name, passes=made.passes, failed="changed nothing"))
    why = "nothing is known to help this network without labels and do no harm; the weights are as received"
    if len(tried) > 1:
        why = "no repair that is known to do this kind of network no harm could be made; the weights are as received"
    if not evidence.has_inputs:
        why += "; some inputs, without labels, may allow more: repair(model, inputs, ...)"
    report = AutoReport(BASELINE, tuple(tried), notes=(*notes, why))
    return _result(_as_it_is(observation, where), passes, report)


def _as_it_is(observation: Observation[Any, Any], where: Where) -> Repaired:
    """The received network; a gain that is known is undone in every network that is judged."""
    kept = copy.deepcopy(observation.received)
    return Repaired(kept, BASELINE, 0.0, {"beside": beside_of(observation, kept, {})} if where.weights_stay else {})


def _result(made: Repaired, passes: float, report: AutoReport) -> Repaired:
    details = {name: getattr(report, name) for name in AutoReport.__dataclass_fields__}
    beside = {name: made.details[name] for name in ("beside", "kept") if name in made.details}
    return Repaired(made.model, report.chosen, passes, {**details, "report": report, **beside})


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
