"""Runs of noisy training, each from its last checkpoint to its record."""

import logging
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import quietnn
from quietnn import records
from quietnn.channels.randomness import derive_seed
from quietnn.channels.transmit import transmit
from quietnn.experiments.engines import OnRound, Unit
from quietnn.experiments.noisy_training import NoisyTraining, candidate, choose
from quietnn.federated.checkpoint import Journal
from quietnn.federated.devices import Diverged
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.rounds import Federation, ServerState, run_round
from quietnn.federated.schemes import FIXED, FIXED_ORACLE, SCHEMES, fixed_temperatures
from quietnn.federated.tasks import load_federated_task
from quietnn.methods import CLEAN
from quietnn.records import RECORDS, Record
from quietnn.records.schema import SELECTION_DRAW
from quietnn.repairs.denoise import denoise
from quietnn.tasks.base import evaluate_classifier

LOGGER = logging.getLogger("quietnn")

CHECKPOINTS = "checkpoints"


class Worker:
    """Runs units of one experiment; loads the data once.

    The folder is that of the sweep: it holds the records that fixed temperatures are chosen by, and checkpoints.
    """

    def __init__(self, config: NoisyTraining, data_dir: Path | None, folder: Path, on_round: OnRound) -> None:
        self.config, self.folder, self.on_round = config, folder, on_round
        self.task = load_federated_task(config.task, image_size=config.image_size, data_dir=data_dir)
        size = config.num_test_examples
        self.test = self.task.test if size is None else self.task.test.take(slice(0, size))

    def run(self, unit: Unit) -> Iterator[Record]:
        """The record of a run, whether it ends well or diverges."""
        run = _Run(self, unit)
        yield run.same_as_before() or run.record()


class _Run:
    """One run, from its last checkpoint if there is one."""

    def __init__(self, worker: Worker, unit: Unit) -> None:
        self._config, self._task, self._test, self._unit = worker.config, worker.task, worker.test, unit
        self._folder, self._on_round = worker.folder, worker.on_round
        self._seed = self._config.seed_of(unit.draw)
        self._model = self._task.fresh_model(self._seed)
        self._progress_examples = self._test.take(slice(0, self._config.num_progress_examples))

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
        unit, folder = self._unit, self._folder / CHECKPOINTS
        name = f"{unit.method.replace(' ', '_')}_{unit.level:g}dB_draw{unit.draw}.safetensors"
        settings = {"method": unit.method, "wnr_db": str(unit.level), "seed": self._seed} | self._config.identity()
        journal = Journal(folder / name, settings)
        server = journal.load() or ServerState.initial(self._model)
        if journal.fell_back is not None:
            LOGGER.warning("%s: %s", folder, journal.fell_back)
        federation = self._federation()
        ending: Record = {"status": "finished"}
        self._model.load_state_dict(server.state)
        while server.num_rounds_done < self._config.num_rounds:
            started = time.perf_counter()
            try:
                server, found = run_round(federation, self._model, server)
            except Diverged as error:
                ending = {"status": "diverged", "diverged_round": server.num_rounds_done + 1, "reason": str(error)}
                break
            found["seconds"] = round(time.perf_counter() - started, 3)
            found["accuracy"] = self._progress(server.num_rounds_done)
            journal.finish(server, found)
            self._on_round(unit, journal.rounds[-1])
        record = self._describe() | ending | _history(journal.rounds)
        if ending["status"] == "finished":
            record |= self._final()
        return record

    def _federation(self) -> Federation:
        config, task = self._config, self._task
        return Federation(
            config.devices(task, seed=self._seed),
            config,
            config.air(self._unit.level),
            self._estimator,
            seed=self._seed,
            score=task.score_on(task.validation(config.num_tuning_examples, seed=self._seed)),
            oracle=task.score_on(self._progress_examples),
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

    def _progress(self, num_rounds_done: int) -> float | None:
        """The accuracy on a test subset where the curve has a point; it decides nothing."""
        config = self._config
        if num_rounds_done % config.test_every and num_rounds_done != config.num_rounds:
            return None
        return evaluate_classifier(self._model, self._progress_examples).accuracy

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
            **self._deployed(),
        }

    def _deployed(self) -> Record:
        """Noise in both phases: the network sent over a noisy link and used as received, or denoised per layer."""
        received, denoised = [], []
        for place, level in enumerate(self._config.deploy_wnr_db):
            observation = transmit(self._model, wnr_db=level, seed=derive_seed(self._seed, "deployment", place))
            estimate = denoise(observation, groups="layerwise").model
            received.append(evaluate_classifier(observation.received, self._test).accuracy)
            denoised.append(evaluate_classifier(estimate, self._test).accuracy)
        if not received:
            return {}
        wnr_db = list(self._config.deploy_wnr_db)
        return {"deployed_wnr_db": wnr_db, "deployed_ml": received, "deployed_mmse_layerwise": denoised}


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
