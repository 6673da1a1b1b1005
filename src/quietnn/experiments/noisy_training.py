"""Noisy training (Section V-C): devices train a network together and send their updates over the air."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from quietnn import records
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.experiments.config import check_work
from quietnn.experiments.engines import OnRound, Unit, Worker
from quietnn.federated.schemes import FIXED, FIXED_ORACLE, METHODS, fixed_temperatures
from quietnn.federated.settings import FederationSettings
from quietnn.methods import CLEAN
from quietnn.records.schema import SELECTION_DRAW
from quietnn.units import db_to_ratio


@dataclass(frozen=True, kw_only=True)
class NoisyTraining(FederationSettings):
    """One accuracy-against-WNR figure of federations trained over the air.

    Draw `d` uses the seed `seed + d` for partition, initial weights, participants, local order, fading and noise, so
    curves are paired across schemes and WNRs.

    Attributes:
        name: what the run is called.
        wnr_db: the WNRs of the received sum, in decibels.
        methods: names from `METHODS`.
        num_draws: seeds at every WNR.
        image_size: CIFAR-10 only: the side that images are shrunk to.
        num_test_examples: size of the fixed test subset for the final accuracy; left out, all of them.
        num_progress_examples: size of the test subset on which accuracy is followed.
        test_every: rounds between two points of the accuracy-against-round curve.
        fixed: candidates for temperatures fixed over the run, each a text `"theta beta"`.
        selection_seed: the seed on which one of them is chosen.
        num_selection_examples: training images that the choice by final accuracy is made on.
        deploy_wnr_db: WNRs of the link over which the finished network is then sent.
    """

    EXTENDABLE: ClassVar[tuple[str, ...]] = ("name", "wnr_db", "methods", "num_draws", "deploy_wnr_db")

    name: str
    task: str
    wnr_db: tuple[float, ...]
    methods: tuple[str, ...]
    num_draws: int = 3
    image_size: int | None = None
    num_test_examples: int | None = None
    num_progress_examples: int = 1000
    test_every: int = 1
    fixed: tuple[str, ...] = ()
    selection_seed: int = 1000
    num_selection_examples: int = 1000
    deploy_wnr_db: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for method in self.methods:
            if method not in METHODS:
                raise unknown_choice("method", method, METHODS)
        if self.num_test_examples is not None and self.num_test_examples < 1:
            raise InvalidConfig(f"num_test_examples is {self.num_test_examples}; give 1 or more, or leave it out")
        if not self.wnr_db or not self.methods:
            raise InvalidConfig("wnr_db and methods must each list at least one entry")
        if {FIXED, FIXED_ORACLE} & set(self.methods) and not self.fixed:
            raise InvalidConfig(f"{FIXED} needs candidates to choose from; set fixed = ['1 0', '0.5 0'] (theta, beta)")
        for wnr_db in (*self.wnr_db, *self.deploy_wnr_db):
            db_to_ratio(wnr_db)
        for text, wnr_db in product(self.fixed, self.wnr_db):
            fixed_temperatures(*candidate(text), wnr_db)
        counts = ("num_draws", "num_progress_examples", "test_every", "num_selection_examples")
        check_work(self, (len(self.methods) * len(self.wnr_db) + 1) * self.num_draws, at_least_one=counts)

    @property
    def digest(self) -> str:
        """Names the identity in a record; adding WNRs, draws or schemes to a run does not change it."""
        return records.digest(self.identity())

    def stages(self) -> list[list[Unit]]:
        """The runs in an order that makes an unfinished sweep useful: all schemes on one seed, then the next seed.

        The runs of a stage are independent; a stage may need the records of those before it.
        """
        wnrs = list(dict.fromkeys(self.wnr_db))
        chosen = [method for method in self.methods if method in (FIXED, FIXED_ORACLE)]
        plain = [method for method in self.methods if method not in chosen]
        stages = []
        for draw in range(self.num_draws):
            runs = [Unit(math.inf, draw, (CLEAN,))]
            runs += [Unit(wnr_db, draw, (method,)) for wnr_db in wnrs for method in plain]
            if chosen and draw == 0:
                runs += [Unit(wnr_db, SELECTION_DRAW, (text,)) for wnr_db in wnrs for text in self.fixed]
            stages += [runs, [Unit(wnr_db, draw, (method,)) for wnr_db in wnrs for method in chosen]]
        return [stage for stage in stages if stage]

    def units(self) -> list[Unit]:
        """All runs."""
        return [unit for stage in self.stages() for unit in stage]

    def worker(self, data_dir: Path | None, folder: Path, on_round: OnRound) -> Worker:
        """Something that runs federations, each from its last checkpoint; the data are loaded once."""
        from quietnn.experiments import federated_run  # which imports this module

        return federated_run.Worker(self, data_dir, folder, on_round)

    def seed_of(self, draw: int) -> int:
        """The seed of a draw."""
        return self.selection_seed if draw == SELECTION_DRAW else self.seed + draw


def candidate(text: str) -> tuple[float, float]:
    """The multiplier and the bias of a candidate for fixed temperatures.

    >>> candidate("0.5 -2")
    (0.5, -2.0)
    """
    try:
        theta, beta = (float(number) for number in text.split())
    except ValueError as error:
        raise InvalidConfig(f"fixed candidate {text!r} is not 'theta beta', for example '0.5 0'") from error
    return theta, beta


def choose(found: Iterable[Mapping[str, Any]], texts: tuple[str, ...], wnr_db: float, score: str) -> str:
    """The candidate whose run on the selection seed ended best, by `"validation_accuracy"` or (oracle) `"accuracy"`.

    Of equal ones the first wins; a run that diverged does only if all of them did, and its own run will then say so.
    """
    by_text = {
        record["method"]: record.get(score)
        for record in found
        if record.get("draw") == SELECTION_DRAW and record.get("wnr_db") == wnr_db
    }
    if not by_text:
        raise InvalidConfig(f"no candidate for fixed temperatures has run at {wnr_db:g} dB; run them first")
    finished = [text for text in texts if by_text.get(text) is not None]
    return str(max(finished or by_text, key=lambda text: by_text[text] or 0.0))
