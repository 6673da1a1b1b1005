"""A network whose memory drifts, repaired at several ages; and how long each repair lasts."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from quietnn.analog.readout import read_out
from quietnn.analog.writing import left_beside
from quietnn.batches import joined
from quietnn.channels.randomness import check_seed, derive_seed, global_randomness
from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, check_is
from quietnn.evidence import Evidence
from quietnn.observation import Observation, observe
from quietnn.repairs.base import REPAIRS, Repaired
from quietnn.score import Score

_TAUGHT = ("matched", "matched_adapter")
BESIDE = ("calibrated", "calibrated_balanced", "re_estimated", "posterior_digital", "posterior_adapter", *_TAUGHT)
"""Repairs that leave the memory as it is, so that they can be used on what it becomes."""

_SPANS = ((365 * 86400, "year"), (30 * 86400, "month"), (86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))

Aged = Callable[[float], "Observation[Any, Any] | nn.Module"]
"""What is read from a memory at an age in seconds."""


@dataclass(frozen=True)
class RepairsOverTime:
    """Repairs of one memory at several ages, and each of them at later ages.

    Attributes:
        ages: in seconds, ascending.
        repaired: the repair made at each age.
        received: the score without repair at each age; None without labels.
        scores: by `(made, read)`, the score of the repair made at one age on what is read at that age or a later one.
    """

    ages: tuple[float, ...]
    repaired: tuple[Repaired, ...]
    received: tuple[Score | None, ...]
    scores: Mapping[tuple[float, float], Score]

    def lasts(self, margin: float = 0.01) -> dict[float, float]:
        """The last age at which each repair is within a margin of the one made at that age, before it first is not.

        By accuracy, or by loss where there is none.
        """
        found = {}
        for made in self.ages:
            found[made] = made
            for read in self.ages[self.ages.index(made) :]:
                old, new = self.scores.get((made, read)), self.scores.get((read, read))
                if old is None or new is None or _gap(old, new) > margin:
                    break
                found[made] = read
        return found

    def __str__(self) -> str:
        """A table: a row for each repair, a column for each age it is read at."""
        head = f"{'repaired at':>12}" + "".join(f"{age_of(age):>12}" for age in self.ages)
        rows = [f"{'never':>12}" + "".join(f"{_shown(score):>12}" for score in self.received)]
        for made in self.ages:
            cells = (_shown(self.scores.get((made, read))) for read in self.ages)
            rows.append(f"{age_of(made):>12}" + "".join(f"{cell:>12}" for cell in cells))
        return "\n".join([head, *rows])


@torch.inference_mode(False)
def repair_over_time(
    what: nn.Module | Aged,
    ages: Sequence[float],
    inputs: object,
    labels: object = None,
    *,
    method: str | None = None,
    teacher: nn.Module | None = None,
    channel: str = "pcm",
    judged_on: Evidence | None = None,
    carry: bool = True,
    seed: int = 0,
) -> RepairsOverTime:
    """Repair a network on analog memory at several ages, from a few inputs at each.

    Examples are carried from age to age: a network that is read later can still be run on them. So each repair is made
    from all that were given up to its age.

    Args:
        what: a clean network, which `channel` ages with the same devices at every age; a network of aihwkit, which ages
            by its own model; or a function from an age in seconds to what is read then.
        ages: in seconds, ascending.
        inputs: examples for all ages, in any form of `Evidence`; or a tuple of `Evidence`, one for each age.
        labels: of the inputs, where there are some.
        method: a repair that leaves the weights: `"calibrated"`, or `"posterior_digital"` where there are labels.
        teacher: the clean network, in place of labels; `method="matched"` needs it.
        channel: a channel that is set by seconds, with its settings.
        judged_on: labelled examples that the repairs are judged on; the examples themselves, if they have labels.
        carry: whether an age also has the examples of those before, where each has its own.
        seed: of the memory and of the fits.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()
    >>> made = repair_over_time(network, [1, 3600], torch.rand(20, 4))
    >>> [one.name for one in made.repaired], made.scores
    (['calibrated', 'calibrated'], {})
    """
    check_seed(seed)
    ages = _checked_ages(ages)
    evidence = _by_age(inputs, labels, teacher, len(ages))
    chosen = method or ("posterior_digital" if evidence[0].has_labels else "calibrated")
    if chosen not in BESIDE:
        raise InvalidConfig(f"method is {chosen!r}, which writes new weights; choose one of {', '.join(BESIDE)}")
    if judged_on is None and evidence[-1].has_labels:
        judged_on = evidence[-1]
    read = _reader(what, channel, seed)
    seen: list[Observation[Any, Any]] = []
    repaired: list[Repaired] = []
    for number, age in enumerate(ages):
        undone = observe(read(age))  # the mean drift is told at every age, so a repair stands beside what is left
        seen.append(undone.on(undone.received))
        first = 0 if carry else number
        repaired.append(REPAIRS[chosen](seen[-1], _together(evidence[first : number + 1]), seed=seed))
    received: list[Score | None] = [None] * len(ages)
    scores = {}
    if judged_on is not None:
        received = [judged_on.score_of(now.model) for now in seen]
        for made_at in range(len(ages)):
            beside = left_beside(repaired[made_at], seen[made_at])
            for read_at in range(made_at, len(ages)):
                network = beside.merge(seen[read_at].model)
                scores[ages[made_at], ages[read_at]] = judged_on.score_of(network)
    return RepairsOverTime(ages, tuple(repaired), tuple(received), scores)


def age_of(seconds: float) -> str:
    """An age in words.

    >>> age_of(1), age_of(86400), age_of(5400)
    ('1 second', '1 day', '1.5 hours')
    """
    for span, name in _SPANS:
        if seconds >= span or span == 1:
            return f"{seconds / span:.3g} {name}" + ("" if seconds == span else "s")
    raise AssertionError("the last span takes all")


def _reader(what: nn.Module | Aged, channel: str, seed: int) -> Aged:
    if not isinstance(what, nn.Module):
        if not callable(what):
            check_is(what, nn.Module, "what", "give a network, or a function from seconds to what is read")
        return what
    if any(hasattr(layer, "analog_module") for layer in what.modules()):
        chip: Any = copy.deepcopy(what).eval()

        def drifted(age: float) -> Observation[Any, Any]:
            with global_randomness():
                torch.manual_seed(derive_seed(seed, "drift"))
                chip.drift_analog_weights(age)
            return read_out(chip, seconds=age, seed=seed)

        return drifted
    return lambda age: transmit(what, channel=channel_named(channel, age), seed=seed)


def _by_age(inputs: object, labels: object, teacher: nn.Module | None, num_ages: int) -> list[Evidence]:
    if isinstance(inputs, tuple) and inputs and all(isinstance(one, Evidence) for one in inputs):
        if len(inputs) != num_ages:
            raise InvalidConfig(f"there are {len(inputs)} Evidence for {num_ages} ages; give one for each age")
        return [one if teacher is None else replace(one, labels=None, teacher=teacher) for one in inputs]
    return [Evidence.of(inputs, labels, teacher=teacher)] * num_ages


def _checked_ages(ages: Sequence[float]) -> tuple[float, ...]:
    try:
        found = tuple(float(age) for age in ages)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"ages is {ages!r}; give seconds: ages=[1, 3600, 86400]") from error
    if not found or list(found) != sorted(set(found)) or found[0] < 0 or not math.isfinite(found[-1]):
        raise InvalidConfig(f"ages are {list(found)}; give seconds in ascending order: ages=[1, 3600, 86400]")
    return found


def _together(parts: Sequence[Evidence]) -> Evidence:
    """All examples of several ages; those that are given again count once."""
    known = [part.in_memory() for part in dict.fromkeys(parts)]
    if len(known) == 1:
        return known[0]
    labels = [part.labels for part in known if part.labels is not None]
    if labels and len(labels) < len(known):
        raise InvalidConfig("some ages have labels and others have none; give labels with all, or with none")
    return replace(
        known[-1], inputs=joined([part.inputs for part in known]), labels=torch.cat(labels) if labels else None
    )


def _gap(old: Score, new: Score) -> float:
    if old.accuracy is not None and new.accuracy is not None:
        return new.accuracy - old.accuracy
    return old.loss - new.loss


def _shown(score: Score | None) -> str:
    if score is None:
        return ""
    return f"{score.loss:.3f}" if score.accuracy is None else f"{score.accuracy:.1%}"
