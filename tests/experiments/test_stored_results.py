"""What is stored in results/ is what the code still computes: some records of each method, each channel once."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quietnn import records
from quietnn.experiments.engines import Unit, key_of
from quietnn.experiments.noisy_inference import NoisyInference, Worker

RESULTS = Path(__file__).parents[2] / "results"
ITERATIVE = {"posterior", "self_trained", "finetuned", "mmse_pb_gradient"}
"""Methods whose steps add up differences of rounding between machines."""

CHOOSING = {"auto", "auto_unlabelled", "clean"}
"""Methods that choose among others by a rule that may change, and the network without noise."""

RUNS = ["digits", *(pytest.param(name, marks=pytest.mark.assets) for name in ("resnet20", "calibration-resnet20"))]
CHANNELS = ("quantise", "quantise-dither", "truncate", "pcm", "reram", "radio", "protected", "digital")


def config_of(run: str) -> NoisyInference:
    fields = json.loads((RESULTS / run / "config.json").read_text(encoding="utf-8"))
    known = {field.name for field in dataclasses.fields(NoisyInference)}
    return NoisyInference(**{
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name in known
    })  # fmt: skip


@cache
def worker_of(run: str) -> Worker:
    return Worker(config_of(run))


def stored(run: str, per_method: int) -> list[dict[str, Any]]:
    """The first records of each method, at levels and draws that differ."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in records.read(RESULTS / run / "records.jsonl"):
        by_method.setdefault(record["method"], []).append(record)
    return [
        record
        for method, found in by_method.items()
        if method not in CHOOSING
        for record in found[:: max(len(found) // per_method, 1)][:per_method]
    ]


def check(run: str, record: dict[str, Any]) -> None:
    level, draw, method = key_of(record)
    (again,) = worker_of(run).run(Unit(level, draw, (method,)))
    assert again["config"] == record["config"]
    num_images = record["num_test_examples"]
    allowed = 0.005 if method in ITERATIVE else 1.5 / num_images  # an output that ties may turn on another machine
    assert abs(again["accuracy"] - record["accuracy"]) <= allowed + 1e-9, (again["accuracy"], record["accuracy"])
    if method not in ITERATIVE:
        for name in ("lambda_prime", "beta", "num_passes"):
            assert again.get(name) == pytest.approx(record.get(name)), name


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_records_of_each_method(run: str) -> None:
    for record in stored(run, 3 if run == "digits" else 1):
        check(run, record)


@pytest.mark.slow
@pytest.mark.assets
@pytest.mark.parametrize("channel", CHANNELS)
def test_each_channel_once(channel: str) -> None:
    for record in stored(f"media-{channel}", 1):
        if record["method"] not in ITERATIVE:
            check(f"media-{channel}", record)
