"""Records as a sweep writes them, from curves whose crossings are known in closed form."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietnn import records as store
from quietnn.records import Record

FLOOR, CLEAN = 0.1, 0.98
SHIFTS = {
    "ml": 0.0,
    "mmse": -0.6,
    "mmse_p": 0.3,
    "mmse_pb": 1.0,
    "mmse_pb_layerwise": 3.0,
    "mmse_pb_oracle": 1.2,
}
WNRS = (-12.0, -10.0, -8.0, -6.0, -4.0, -2.0, 0.0)
LAYERS = {"stem": 3.1, "block1.conv1": -4.0, "block1.conv2": -5.5, "block2.conv1": -7.2, "head": 9.0}


def fall(wnr_db: float) -> float:
    """A logistic fall from the clean accuracy to chance, half-way at -6 dB."""
    return FLOOR + (CLEAN - FLOOR) / (1 + math.exp(-(wnr_db + 6.0)))


def surface(lambda_prime: float, beta: float, wnr_db: float) -> float:
    height = fall(wnr_db + 1.5)
    return FLOOR + (height - FLOOR) * math.exp(-(((lambda_prime - 0.9) / 0.25) ** 2) - ((beta + 1.0) / 2.5) ** 2)


def trials(wnr_db: float, generator: np.random.Generator, num_examples: int) -> list[list[float | None]]:
    pole = 1 + 10 ** (wnr_db / 10)
    found: list[list[float | None]] = []
    for lambda_prime in np.arange(0.0, 1.4, 0.1):
        for beta in np.arange(-4.0, 3.1, 1.0):
            if lambda_prime >= pole:
                found.append([round(float(lambda_prime), 3), float(beta), None, None])
                continue
            chance = surface(float(lambda_prime), float(beta), wnr_db)
            score = generator.binomial(num_examples, chance) / num_examples
            found.append([round(float(lambda_prime), 3), float(beta), float(score), float(2.3 * (1 - score))])
    return found


def synthetic_records(
    *,
    run: str = "digits",
    task: str = "digits",
    methods: Sequence[str] = tuple(SHIFTS),
    wnrs: Sequence[float] = WNRS,
    num_draws: int = 5,
    num_tuning_examples: int = 100,
    spread_db: float = 0.4,
    seed: int = 0,
    with_trials: bool = True,
) -> list[Record]:
    """Every method's fall, shifted by its gain; a draw moves the whole curve a little, the same for all methods."""
    generator = np.random.default_rng(seed)
    common = {"experiment": "noisy_inference", "run": run, "task": task, "seed": seed, "version": "0.1.0"}
    common |= {"config": "abc123def456", "num_test_examples": 1000}
    found: list[Record] = [common | {"method": "clean", "wnr_db": math.inf, "draw": 0, "accuracy": CLEAN, "loss": 0.08}]
    for draw in range(num_draws):
        luck = spread_db * generator.standard_normal()
        for wnr_db in wnrs:
            for method in methods:
                own = 0.15 * spread_db * generator.standard_normal()
                record: Record = common | {"method": method, "wnr_db": wnr_db, "draw": draw}
                record |= {"accuracy": fall(wnr_db + SHIFTS.get(method, 0.5) + luck + own), "loss": 1.0}
                record |= {"noise_variance": 1e-3, "assumed_noise_variance": 1e-3, "trials": None}
                record |= {"num_tuning_examples": num_tuning_examples, "num_passes": 0, "seconds": 0.02}
                found.append(record | _tuning(method, wnr_db, generator, num_tuning_examples, with_trials))
    return found


def _tuning(method: str, wnr_db: float, generator: np.random.Generator, size: int, with_trials: bool) -> dict[str, Any]:
    if not with_trials or not method.startswith("mmse_pb"):
        return {}
    if method.endswith("layerwise"):
        temperatures = {
            name: [0.9 + 0.02 * own + 0.03 * generator.standard_normal(), -1.0 + generator.standard_normal()]
            for name, own in LAYERS.items()
        }
        own_wnr = {name: wnr_db + own for name, own in LAYERS.items()}
        return {"group_temperatures": temperatures, "group_wnr_db": own_wnr, "num_passes": 160, "seconds": 4.2}
    found = trials(wnr_db, generator, 1000 if method.endswith("oracle") else size)
    best = max((trial for trial in found if trial[2] is not None), key=lambda trial: trial[2] or 0.0)
    chosen = {"lambda_prime": best[0], "beta": best[1], "tuning_accuracy": best[2]}
    return chosen | {"trials": found, "num_passes": len(found), "seconds": 1.9}


def perplexity_records(*, num_draws: int = 5, spread: float = 0.2) -> list[Record]:
    """A language model: a loss of log 8 without noise, of log 9 at 20 dB, 0.3 more a dB below; MMSE gains 2 dB."""
    generator = np.random.default_rng(0)
    common = {"experiment": "noisy_inference", "run": "words", "task": "lm/mine", "accuracy": None}
    common |= {"num_test_examples": 20_000, "seconds": 0.1, "num_passes": 0}

    def record(method: str, wnr_db: float, draw: int, loss: float) -> Record:
        return {**common, "method": method, "wnr_db": wnr_db, "draw": draw, "score": math.exp(loss), "loss": loss}

    found = [record("clean", math.inf, 0, math.log(8.0))]
    for draw in range(num_draws):
        luck = spread * generator.standard_normal()
        for wnr_db in (10.0, 15.0, 20.0):
            for method, gain in (("ml", 0.0), ("mmse", 2.0)):
                loss = math.log(9.0) + 0.3 * (20.0 - wnr_db - gain)
                found.append(record(method, wnr_db, draw, loss + luck))
    return found


def run_folder(folder: Path, found: Sequence[Record], **config: Any) -> Path:
    """A run folder as a sweep leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    store.append(folder / "records.jsonl", found)
    settings = {"name": found[0]["run"], "task": found[0]["task"], "seed": 0, "num_draws": 5, "methods": list(SHIFTS)}
    (folder / "config.json").write_text(json.dumps(settings | config))
    return folder


@pytest.fixture
def make_records() -> Callable[..., list[Record]]:
    return synthetic_records


@pytest.fixture
def language_records() -> Callable[..., list[Record]]:
    return perplexity_records


@pytest.fixture
def write_run() -> Callable[..., Path]:
    return run_folder


@pytest.fixture(scope="session")
def full_records() -> tuple[Record, ...]:
    """A run with every method, trials and layers; read it, never change it."""
    return tuple(synthetic_records(wnrs=(-10.0, -8.0, -6.0, -4.0, -2.0), num_draws=3))
