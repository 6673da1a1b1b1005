"""What a sweep can compare: every repair, and a few that only an experiment can have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quietnn.errors import InfeasibleTemperatures, InvalidConfig, unknown_choice
from quietnn.evidence import Evidence
from quietnn.observation import Observation
from quietnn.repairs.base import REPAIRS, Repaired
from quietnn.repairs.grouped import denoised
from quietnn.repairs.temperatures.tune import DEFAULT, Search, mmse_pb, searched


@dataclass(frozen=True)
class Draw:
    """One noisy network as its receiver sees it, and what an experiment knows beside it.

    Attributes:
        observation: what arrived, with the noise that the receiver believes in.
        tuning: labelled examples to tune on.
        oracle: the test examples, for methods that are labelled oracle and for nothing else.
        reference: the same draw at another noise power, for methods that reuse its temperatures.
        search: how temperatures are found.
        seed: of the methods that split the examples or draw variants of them.
    """

    observation: Observation[Any, Any]
    tuning: Evidence
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
    """Refuse a name that is neither a repair nor one of the experiment's own.

    Raises:
        InvalidConfig: with the nearest name there is.
    """
    if name not in EXPERIMENTAL and name not in REPAIRS:
        raise unknown_choice("method", name, (*REPAIRS, *EXPERIMENTAL))


def run_method(name: str, draw: Draw) -> Repaired:
    """What a method makes of a draw."""
    if name in EXPERIMENTAL:
        return EXPERIMENTAL[name](draw)
    row = REPAIRS[name]
    settings = draw.search if isinstance(row.settings, Search) else None
    return row(draw.observation, draw.tuning, seed=draw.seed, settings=settings)
