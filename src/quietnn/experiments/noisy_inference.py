"""Noisy inference (Section V-B): train clean, add noise at a WNR, denoise, test."""

import math
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

import quietnn
from quietnn import records
from quietnn.analog.converter import PRESETS
from quietnn.analog.equivalent import observed_on_hardware
from quietnn.analog.hardware import is_on_hardware, on_hardware
from quietnn.analog.ranges import BY, FIXED
from quietnn.channels.awgn import AWGN, Power
from quietnn.channels.base import Channel, Rated
from quietnn.channels.moments import effective_wnr_db
from quietnn.channels.randomness import derive_seed
from quietnn.channels.table import channel_named, level_of
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, unknown_choice
from quietnn.experiments.config import check_work, to_mapping
from quietnn.experiments.engines import OnRound, Unit, ignore
from quietnn.experiments.methods import Draw, attempt, check_method, described, is_taught
from quietnn.methods import CLEAN
from quietnn.moments import WeightStatistics
from quietnn.noise import scaled
from quietnn.records import Record
from quietnn.records.right import packed
from quietnn.repairs.base import Repaired
from quietnn.repairs.temperatures.result import Criterion
from quietnn.repairs.temperatures.tune import SEARCHES, Search
from quietnn.score import Score
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import is_own, load_task, own_function
from quietnn.theory.family import Form
from quietnn.units import db_to_ratio

WHITE = "awgn"
"""The channel of the paper; its records do not name it."""


@dataclass(frozen=True)
class NoisyInference:
    """One accuracy-against-WNR figure.

    Draw `d` uses the noise seed `seed + d` at every WNR, so curves are paired across methods and WNRs, and the
    tuning examples of the same seed.

    Attributes:
        name: what the run is called.
        task: a name of `quietnn.tasks.registry`.
        wnr_db: the WNRs, in decibels.
        methods: names from `REPAIRS`, or of the few that only an experiment has.
        num_draws: noise draws at every WNR.
        seed: of the first draw.
        num_tuning_examples: `kappa`.
        num_test_examples: size of the fixed test subset; left out, all of them.
        first_test_position: how many positions of the fixed permutation come before that subset.
        search: `"natural"` (steps in natural units, layers by gradient), `"coarse-to-fine"` (22 points), `"even-grid"`
            (144), or one of the authors' grids.
        criterion: `"accuracy"` with ties broken by loss, `"accuracy-only"`, or `"loss"`.
        layerwise_criterion: the same for the layerwise search.
        layerwise_sweeps: how often the layerwise search visits every layer.
        power: whether the WNR is against the weights' `"variance"` or `"second-moment"`.
        form: how the prior mean enters the denoisers.
        statistics: whole-model statistics from the `"received"` weights, or told by the sender (`"clean"`).
        noise_misjudged_db: the receiver believes in a noise power this much above the true one.
        reuse_wnr_db: where `mmse_pb_reused` tunes its temperatures.
        weights: a weights file, where the task's usual one is not meant.
        channel: a name of `quietnn.channels.table`, with settings: `"pcm:compensate=false"`.
        levels: for a channel that is not set by a WNR, what it is set by: bits, or seconds; `wnr_db` is then empty.
        converter: a name of `quietnn.analog.PRESETS`, to compute with such converters; empty for exact computation.
        input_ranges: of the converters: `"error"`, `"largest"` or `"fixed"`, see `quietnn.analog.calibrate_ranges`.
        num_taught_inputs: inputs for methods that have the clean network as a teacher; 0 is `num_tuning_examples`.
    """

    EXTENDABLE: ClassVar[tuple[str, ...]] = ("name", "wnr_db", "levels", "methods", "num_draws")

    name: str
    task: str
    wnr_db: tuple[float, ...]
    methods: tuple[str, ...]
    num_draws: int = 5
    seed: int = 0
    num_tuning_examples: int = 100
    num_test_examples: int | None = None
    search: str = "coarse-to-fine"
    criterion: str = Criterion.ACCURACY
    layerwise_criterion: str = Criterion.LOSS
    layerwise_sweeps: int = 1
    power: str = Power.VARIANCE
    form: str = Form.CENTRED
    statistics: str = "received"
    noise_misjudged_db: float = 0.0
    reuse_wnr_db: float | None = None
    weights: str | None = None
    channel: str = WHITE
    levels: tuple[float, ...] = ()
    first_test_position: int = 0
    converter: str = ""
    input_ranges: str = "error"
    num_taught_inputs: int = 0

    def __post_init__(self) -> None:
        if is_own(self.task):
            own_function(self.task)  # its module may register repairs and channels of its own
        for method in self.methods:
            check_method(method)
        on_chip = {"converter": ("", *PRESETS), "input_ranges": (*BY, FIXED)}
        for name, choices in {"search": SEARCHES, "statistics": ("received", "clean"), **on_chip}.items():
            if getattr(self, name) not in choices:
                raise unknown_choice(name, getattr(self, name), choices)
        for kind, value in ((Criterion, self.criterion), (Criterion, self.layerwise_criterion), (Form, self.form)):
            kind(value)
        Power(self.power)
        for name in ("first_test_position", "num_taught_inputs"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be 0 or more")
        by_wnr = level_of(self.channel) == "wnr_db"
        if not self.methods or not (self.wnr_db if by_wnr else self.levels):
            raise InvalidConfig(f"{'wnr_db' if by_wnr else 'levels'} and methods must each list at least one entry")
        if self.levels if by_wnr else self.wnr_db:
            raise InvalidConfig(
                f"channel {self.channel!r} is set by {level_of(self.channel)}; "
                + ("list it in wnr_db and leave levels out" if by_wnr else "list it in levels, and set wnr_db = []")
            )
        if self.channel != WHITE:
            for level in (*self.levels, *self.wnr_db):
                channel_named(self.channel, level)
            if self.power != Power.VARIANCE:
                raise InvalidConfig(f"power is {self.power!r}, which is for the channel {WHITE!r} only; leave it out")
        if "mmse_pb_reused" in self.methods and self.reuse_wnr_db is None:
            raise InvalidConfig("mmse_pb_reused needs the WNR to tune at; set reuse_wnr_db")
        for wnr_db in self.wnr_db:
            db_to_ratio(wnr_db)
        num_records = len(self.methods) * len(self.wnr_db or self.levels) * self.num_draws
        check_work(self, num_records, at_least_one=("num_draws", "num_tuning_examples", "layerwise_sweeps"))

    @property
    def digest(self) -> str:
        """Names what decides a record's value; adding WNRs, draws or methods to a run does not change it."""
        decisive = {key: value for key, value in to_mapping(self).items() if key not in self.EXTENDABLE}
        if self.channel == WHITE:
            del decisive["channel"]  # as in runs from before there were others
        for name in ("first_test_position", "num_taught_inputs"):
            if getattr(self, name) == 0:
                del decisive[name]  # as in runs that could not choose it
        if not self.converter:
            del decisive["converter"], decisive["input_ranges"]  # as in runs that compute exactly
        return records.digest(decisive)

    def units(self) -> list[Unit]:
        """The pieces of work, which may run in any order and place; the clean network first."""
        levels = dict.fromkeys(self.wnr_db or self.levels)
        noisy = [Unit(level, draw, self.methods) for draw in range(self.num_draws) for level in levels]
        return [Unit(math.inf, 0, (CLEAN,)), *noisy]

    def stages(self) -> list[list[Unit]]:
        """All units are independent."""
        return [self.units()]

    def worker(self, data_dir: Path | None = None, folder: Path | None = None, on_round: OnRound = ignore) -> "Worker":
        """Something that runs units, with model and data loaded once; it keeps nothing in a folder."""
        return Worker(self, data_dir)

    def run(self, data_dir: Path | None = None) -> Iterator[Record]:
        """All records, one after another, in this process."""
        worker = self.worker(data_dir)
        for unit in self.units():
            yield from worker.run(unit)


class Worker:
    """Runs units of one experiment; loads the task once."""

    def __init__(self, config: NoisyInference, data_dir: Path | None = None) -> None:
        self._config = config
        self._task = load_task(config.task, data_dir=data_dir, weights=config.weights)
        self._model = self._task.load_model()
        self._test = self._task.tested_on(config.num_test_examples, config.first_test_position)
        self._oracle = self._task.evidence(self._test)
        self._reference = cache(self._draw)  # it is reused at every level, so that it searches once
        self._scored: tuple[dict[str, Tensor], Score] | None = None

    def run(self, unit: Unit) -> Iterator[Record]:
        """The records of a unit, each as soon as it is there."""
        draw = None if unit.methods == (CLEAN,) else self._draw(unit.level, unit.draw)
        for method in unit.methods:
            started = time.perf_counter()
            made = Repaired(self._model, CLEAN) if draw is None else attempt(method, draw)
            yield self._record(unit, method, made, draw, started)

    def _channel(self, level: float) -> Channel:
        config = self._config
        if config.channel == WHITE:
            return AWGN(wnr_db=level, power=config.power)
        return channel_named(config.channel, level)

    def _draw(self, level: float, draw: int) -> Draw:
        config = self._config
        observation = transmit(self._model, channel=self._channel(level), seed=config.seed + draw)
        if config.noise_misjudged_db:
            believed = scaled(observation.known_noise, db_to_ratio(config.noise_misjudged_db))
            observation = observation.with_noise(believed)
        if config.statistics == "clean":
            clean = WeightStatistics.from_clean(noisy_weights(self._model).values())
            observation = replace(observation, statistics={"whole": clean})
        reuse_wnr_db = config.reuse_wnr_db
        tuning = self._task.evidence(self._task.tuning_examples(config.num_tuning_examples, config.seed + draw))
        taught = None
        if asking := [method for method in config.methods if is_taught(method)]:
            inputs = self._task.tuning_examples(self._num_examples(asking[0]), config.seed + draw)
            taught = replace(self._task.evidence(inputs).without_labels(), teacher=self._model)
        if config.converter:
            observation = observed_on_hardware(
                observation,
                config.converter,
                tuning.without_labels(),
                written=(self._model, self._channel(level)),
                by=config.input_ranges,
                seed=config.seed + draw,
            )
        return Draw(
            observation,
            tuning,
            taught,
            oracle=self._oracle,
            reference=None if reuse_wnr_db is None else lambda: self._reference(reuse_wnr_db, draw),
            search=Search(
                config.search, config.criterion, config.layerwise_criterion, config.layerwise_sweeps, config.form
            ),
            seed=config.seed + draw,
        )

    def _num_examples(self, method: str) -> int:
        config = self._config
        return is_taught(method) * config.num_taught_inputs or config.num_tuning_examples

    def _where(self, level: float, draw: Draw | None) -> Record:
        """The WNR; for another channel its setting too, the WNR that its noise amounts to, and its channel uses."""
        config = self._config
        if config.channel == WHITE:
            return {"wnr_db": level}
        where: Record = {"wnr_db": level, "channel": config.channel, "level": level}
        if draw is None:
            return where
        weights, channel = noisy_weights(self._model), self._channel(level)
        if level_of(config.channel) != "wnr_db":
            noise = draw.observation.mean_noise_variance / db_to_ratio(config.noise_misjudged_db)
            where["wnr_db"] = effective_wnr_db(weights, noise)
        return where | ({"rate": channel.rate(weights)} if isinstance(channel, Rated) else {})

    def _score(self, model: nn.Module) -> Score:
        """The score on the test examples, under fresh noise of the computation. The last network is not run again."""
        if is_on_hardware(model):
            fresh = on_hardware(model, self._config.converter, seed=derive_seed(self._config.seed, "test"))
            return self._task.score_of(fresh, self._test)
        state = model.state_dict()
        if self._scored is None or not _equal(state, self._scored[0]):
            self._scored = deepcopy(state), self._task.score_of(model, self._test)
        return self._scored[1]

    def _record(self, unit: Unit, method: str, made: Repaired, draw: Draw | None, started: float) -> Record:
        config = self._config
        score = self._score(made.model)
        assumed = 0.0 if draw is None else draw.observation.mean_noise_variance
        return {
            "experiment": "noisy_inference",
            "run": config.name,
            "task": config.task,
            "method": method,
            **self._where(unit.level, draw),
            "draw": unit.draw,
            "seed": config.seed + unit.draw,
            "accuracy": score.accuracy,
            **({} if score.accuracy is not None else {"score": score.number}),
            "loss": score.loss,
            "num_test_examples": score.num_examples,
            **({} if score.right is None else {"right": packed(score.right.tolist())}),
            "noise_variance": assumed / db_to_ratio(config.noise_misjudged_db),
            "assumed_noise_variance": assumed,
            "num_tuning_examples": self._num_examples(method),
            "num_passes": math.ceil(made.passes),
            **({"converter": config.converter, "input_ranges": config.input_ranges} if config.converter else {}),
            **described(made, draw),
            "seconds": round(time.perf_counter() - started, 3),
            "config": config.digest,
            "version": quietnn.__version__,
        }


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())
