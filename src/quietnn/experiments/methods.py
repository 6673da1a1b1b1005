"""What a sweep can compare: every repair, and a few that only an experiment has, and what each says of itself."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, QuietnnError, unknown_choice
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.records import Record
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.base import REPAIRS, Repaired
from quietnn.repairs.grouped import denoised, grouped
from quietnn.repairs.temperatures.result import TuningResult
from quietnn.repairs.temperatures.tune import DEFAULT, Search, mmse_pb, searched
from quietnn.units import ratio_to_db

TOLD = ("failed", "chosen", "expected_accuracy", "accuracy_at_least")
"""What an outcome may say of itself; it is recorded where it does."""


@dataclass(frozen=True)
class Draw:
    """One noisy network as its receiver sees it, and what an experiment knows beside it.

    The test examples are for methods that are labelled oracle and for nothing else; the reference is the same draw at
    another noise power, for methods that reuse its temperatures. `taught` has inputs that the clean network labels.
    """

    observation: Observation[Any, Any]
    tuning: Evidence
    taught: Evidence | None = None
    oracle: Evidence | None = None
    reference: "Callable[[], Draw] | None" = None
    search: Search = DEFAULT
    seed: int = 0


def _mmse_pb_oracle(draw: Draw) -> Repaired:
    if draw.oracle is None:
        raise InvalidConfig("there are no test examples to be an oracle with")
    return mmse_pb(draw.observation.at_unit_gain(), draw.oracle, search=draw.search)


def _mmse_pb_reused(draw: Draw) -> Repaired:
    """Temperatures tuned at another WNR; where the pole has moved in front of them, the received weights."""
    if draw.reference is None:
        raise InvalidConfig("reused temperatures need the WNR they were tuned at; set reuse_wnr_db")
    there = draw.reference()
    found = searched(there.observation.at_unit_gain(), there.tuning, there.search, seed=there.seed)
    here = draw.observation.at_unit_gain()
    try:
        model = denoised(here, found.temperatures, form=draw.search.form)
    except InfeasibleTemperatures:
        return Repaired(here.received, "mmse_pb_reused")
    return Repaired(model, "mmse_pb_reused", 0, {"temperatures": found.temperatures, "search": found})


EXPERIMENTAL: dict[str, Callable[[Draw], Repaired]] = {
    "mmse_pb_oracle": _mmse_pb_oracle,
    "mmse_pb_reused": _mmse_pb_reused,
}
"""Methods that need what no receiver has: the test examples, or another reception."""


def check_method(name: str) -> None:
    """Refuse a name that is neither a repair nor one of the experiment's own."""
    if name not in EXPERIMENTAL and name not in REPAIRS:
        raise unknown_choice("method", name, (*REPAIRS, *EXPERIMENTAL))


def is_taught(name: str) -> bool:
    """Whether a method asks the clean network."""
    return name in REPAIRS and REPAIRS[name].needs == "teacher"


def run_method(name: str, draw: Draw) -> Repaired:
    """What a method makes of a draw."""
    if name in EXPERIMENTAL:
        return EXPERIMENTAL[name](draw)
    row = REPAIRS[name]
    settings = draw.search if isinstance(row.settings, Search) else None
    evidence = draw.taught if draw.taught is not None and is_taught(name) else draw.tuning
    return row(draw.observation, evidence, seed=draw.seed, settings=settings)


def attempt(method: str, draw: Draw) -> Repaired:
    """What a method makes of the network; where it gives up, the received weights, and why."""
    try:
        return run_method(method, draw)
    except QuietnnError as error:
        return Repaired(draw.observation.at_unit_gain().received, method, details={"failed": str(error)})


def described(made: Repaired, draw: Draw | None) -> Record:
    """What a method says of itself, as flat values: what its search chose and saw, and what records keep beside it."""
    details = {"chosen": made.details.get("start"), **made.details}
    return _searched(made, draw) | {key: details[key] for key in TOLD if details.get(key) is not None}


def _searched(made: Repaired, draw: Draw | None) -> Record:
    """What a search chose and what it saw on the way, as flat values."""
    search: TuningResult[Any] | None = made.details.get("search")
    if search is None or draw is None:
        return {"tuning_accuracy": None}
    score, chosen = search.best.score, search.temperatures
    description: Record = {"tuning_accuracy": score.accuracy if score else None}
    if isinstance(chosen, Mapping):
        layers = grouped(draw.observation.at_unit_gain(), "layerwise", form=draw.search.form)
        variances = {group: (layers.statistics[group].variance, layers.group_noise(group)) for group in chosen}
        wnr_db = {
            group: ratio_to_db(weight / noise) if noise else math.inf for group, (weight, noise) in variances.items()
        }
        pairs = {group: [pair.lambda_prime, pair.beta] for group, pair in chosen.items()}
        return {**description, "group_temperatures": pairs, "group_wnr_db": wnr_db}
    trials = [
        [at.lambda_prime, at.beta, seen and seen.accuracy, seen and seen.loss]
        for at, seen in ((trial.temperatures, trial.score) for trial in search.trials)
        if isinstance(at, Temperatures)
    ]
    return {**description, "lambda_prime": chosen.lambda_prime, "beta": chosen.beta, "trials": trials}
