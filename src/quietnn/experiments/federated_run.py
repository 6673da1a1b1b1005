"""Runs of noisy training, each from its last checkpoint to its record."""

import logging
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

import quietnn
from quietnn import records
from quietnn.channels.transmit import transmit
from quietnn.experiments.noisy_training import SELECTION_DRAW, NoisyTraining, candidate, choose
from quietnn.experiments.sweep import RECORDS
from quietnn.experiments.unit import Unit
from quietnn.federated.aggregate import ScoreState
from quietnn.federated.checkpoint import load_server, save_server
from quietnn.federated.devices import Diverged, copy_state
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.rounds import Federation, ServerState, run_round
from quietnn.federated.schemes import CLEAN, FIXED, FIXED_ORACLE, SCHEMES, fixed_temperatures
from quietnn.federated.seeds import derive_seed
from quietnn.federated.tasks import FederatedTask, load_federated_task
from quietnn.records import Record
from quietnn.repairs.denoise import denoise
from quietnn.score import Score
from quietnn.tasks.base import Examples, evaluate_classifier

LOGGER = logging.getLogger("quietnn")

CHECKPOINTS = "checkpoints"

OnRound = Callable[[Unit, Record], None]
"""Told about each round: which run, and the record of the round."""


def ignore_round(unit: Unit, record: Record) -> None:
    """The callback of those who do not want to know."""


class Worker:
    """Runs units of one experiment; loads the data once.

    Args:
        config: the experiment.
        folder: of the sweep: records that fixed temperatures are chosen by, and checkpoints.
        data_dir: where data sets lie.
        on_round: told about each round.
    """

    def __init__(
        self, config: NoisyTraining, folder: Path, data_dir: Path | None = None, on_round: OnRound = ignore_round
    ) -> None:
        self._config = config
        self._folder = folder
        self._on_round = on_round
        self._task = load_federated_task(config.task, image_size=config.image_size, data_dir=data_dir)
        size = config.num_test_examples
        self._test = self._task.test if size is None else self._task.test.take(slice(0, size))

    def run(self, unit: Unit) -> Iterator[Record]:
        """The record of a run, whether it ends well or diverges."""
        run = _Run(self._config, self._task, self._test, unit, self._folder, self._on_round)
        yield run.same_as_before() or run.record()


class _Run:
    """One run, from its last checkpoint if there is one."""

    def __init__(
        self,
        config: NoisyTraining,
        task: FederatedTask,
        test: Examples,
        unit: Unit,
        folder: Path,
        on_round: OnRound,
    ) -> None:
        self._config, self._task, self._test, self._unit = config, task, test, unit
        self._folder, self._on_round = folder, on_round
        self._seed = config.seed_of(unit.draw)
        self._model = task.fresh_model(self._seed)
        self._scratch = task.fresh_model(self._seed)

    def same_as_before(self) -> Record | None:
        """The record of a run with the same fixed temperatures and seed: two ways to choose them often agree."""
        if self._candidate is None or self._unit.draw == SELECTION_DRAW:
            return None
        place = {"wnr_db": self._unit.level, "draw": self._unit.draw, "fixed": self._candidate}
        for found in records.read(self._folder / RECORDS):
            if place.items() <= found.items():
                return {**found, "method": self._unit.method}
        return None

    def record(self) -> Record:
        """Run all rounds that are missing and write down how it ended."""
        stored = load_server(self._checkpoint, self._settings)
        server, rounds, fell_back = stored.server or ServerState.initial(self._model), stored.rounds, stored.fell_back
        if fell_back is not None:
            LOGGER.warning("%s: %s", self._checkpoint.parent, fell_back)
        federation = self._federation()
        diverged: Record = {"status": "finished"}
        copy_state(self._model, server.state)
        while server.num_rounds_done < self._config.num_rounds:
            started = time.perf_counter()
            try:
                server, found = run_round(federation, self._model, server)
            except Diverged as error:
                diverged = {"status": "diverged", "diverged_round": server.num_rounds_done + 1, "reason": str(error)}
                break
            found["seconds"] = round(time.perf_counter() - started, 3)
            found["accuracy"] = self._progress(server.num_rounds_done)
            if fell_back is not None:
                found["fell_back"], fell_back = fell_back, None
            rounds.append(found)
            save_server(self._checkpoint, server, rounds, self._settings)
            self._on_round(self._unit, found)
        record = self._describe() | diverged | _history(rounds)
        if diverged["status"] == "finished":
            record |= self._final()
        return record

    def _federation(self) -> Federation:
        config = self._config
        validation = self._task.validation(config.num_tuning_examples, seed=self._seed)
        return Federation(
            devices=config.devices(self._task, seed=self._seed),
            training=config.training(),
            air=config.air(self._unit.level),
            estimator=self._estimator,
            num_active=config.num_active,
            seed=self._seed,
            score=self._judge(validation),
            oracle=self._judge(self._test.take(slice(0, config.num_progress_examples))),
            told=config.told,
            norm_bound=config.norm_bound,
        )

    @cached_property
    def _candidate(self) -> str | None:
        """The text of the fixed temperatures, where the run has any."""
        unit, config = self._unit, self._config
        if unit.draw == SELECTION_DRAW:
            return unit.method
        if unit.method not in (FIXED, FIXED_ORACLE):
            return None
        score = "validation_accuracy" if unit.method == FIXED else "accuracy"
        return choose(records.read(self._folder / RECORDS), config.fixed, unit.level, score)

    @property
    def _estimator(self) -> Estimator:
        if self._candidate is not None:
            return Affine(fixed_temperatures(*candidate(self._candidate), self._unit.level))
        return SCHEMES["ml"] if self._unit.method == CLEAN else SCHEMES[self._unit.method]

    def _judge(self, examples: Examples) -> ScoreState:
        def judge(state: Any) -> Score:
            copy_state(self._scratch, state)
            return evaluate_classifier(self._scratch, examples)

        return judge

    def _progress(self, num_rounds_done: int) -> float | None:
        """The accuracy on a test subset where the curve has a point; it decides nothing."""
        config = self._config
        if num_rounds_done % config.test_every and num_rounds_done != config.num_rounds:
            return None
        return evaluate_classifier(self._model, self._test.take(slice(0, config.num_progress_examples))).accuracy

    def _describe(self) -> Record:
        config, unit = self._config, self._unit
        selection = unit.draw == SELECTION_DRAW
        record: Record = {
            "experiment": "noisy_training_selection" if selection else "noisy_training",
            "run": config.name,
            "task": config.task,
            "method": unit.method,
            "wnr_db": unit.level,
            "draw": unit.draw,
            "seed": self._seed,
            "accuracy": None,
            "num_rounds": config.num_rounds,
            "num_tuning_examples": config.num_tuning_examples,
            "config": config.digest,
            "version": quietnn.__version__,
        }
        if self._candidate is not None:
            temperatures = fixed_temperatures(*candidate(self._candidate), unit.level)
            record |= {"lambda_prime": temperatures.lambda_prime, "beta": temperatures.beta, "fixed": self._candidate}
        return record

    def _final(self) -> Record:
        """The accuracies of the finished network: test, selection examples, and after a noisy link."""
        score = evaluate_classifier(self._model, self._test)
        selection = self._task.validation(self._config.num_selection_examples, seed=self._seed)
        return {
            "accuracy": score.accuracy,
            "loss": score.loss,
            "num_test_examples": score.num_examples,
            "validation_accuracy": evaluate_classifier(self._model, selection).accuracy,
            **self._deployed(self._model),
        }

    def _deployed(self, model: nn.Module) -> Record:
        """Noise in both phases: the network sent over a noisy link and used as it came, or denoised per layer."""
        received, denoised = [], []
        for place, wnr_db in enumerate(self._config.deploy_wnr_db):
            observation = transmit(model, wnr_db=wnr_db, seed=derive_seed(self._seed, "deployment", place))
            estimate = denoise(observation, groups="layerwise").model
            received.append(evaluate_classifier(observation.received, self._test).accuracy)
            denoised.append(evaluate_classifier(estimate, self._test).accuracy)
        if not received:
            return {}
        wnrs = list(self._config.deploy_wnr_db)
        return {"deployed_wnr_db": wnrs, "deployed_ml": received, "deployed_mmse_layerwise": denoised}

    @property
    def _checkpoint(self) -> Path:
        unit = self._unit
        method = unit.method.replace(" ", "_")
        return self._folder / CHECKPOINTS / f"{method}_{unit.level:g}dB_draw{unit.draw}.safetensors"

    @property
    def _settings(self) -> Record:
        mine = {"method": self._unit.method, "wnr_db": str(self._unit.level), "seed": self._seed}
        return mine | self._config.identity()


def _history(rounds: list[Record]) -> Record:
    """What the rounds were like, as lists in one record."""
    tested = [found for found in rounds if found.get("accuracy") is not None]
    history: Record = {
        "tested_rounds": [found["round"] for found in tested],
        "round_accuracy": [found["accuracy"] for found in tested],
        "round_loss": [round(found["loss"], 5) for found in rounds],
        "round_theta": [round(found.get("theta", 1.0), 5) for found in rounds],
        "num_passes": sum(int(found.get("num_scores", 0)) for found in rounds),
        "seconds": round(sum(found["seconds"] for found in rounds), 3),
    }
    if fell_back := [found["fell_back"] for found in rounds if "fell_back" in found]:
        history["fell_back"] = fell_back
    if left_out := [
        f"round {found['round']}: device {device}: {reason}"
        for found in rounds
        for device, reason in zip(found.get("missing", []), found.get("reasons", []), strict=True)
    ]:
        history["left_out"] = left_out
    return history
