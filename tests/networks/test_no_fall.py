"""`quietnn.repair` on many kinds of networks, with what there is: none scores below what was received."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import quietnn
from quietnn import Observation, Repaired
from quietnn.batches import take

NAMES = (
    "mlp",
    "conv1d",
    "gru",
    "lstm",
    "vit",
    "attention",
    "groupnorm",
    "instancenorm",
    "bert",
    "llama",
    "unet",
)
SEEDS = range(100, 108)
MAX_PASSES = 100.0
"""Enough for all but the costliest repairs."""


def loader_of(inputs: Any, labels: Tensor | None = None) -> DataLoader[Any]:
    """The same examples one by one: inputs, `(inputs, label)`, or a dict with `labels` in it."""
    rows = [take(inputs, torch.tensor(place)) for place in range(80)]
    if labels is not None:
        pairs = zip(rows, labels, strict=True)
        rows = [{**row, "labels": label} if isinstance(row, dict) else (row, label) for row, label in pairs]
    return DataLoader(rows, batch_size=32)


@pytest.fixture(scope="module")
def received(trained: Callable[[str], Any]) -> Callable[[str, int], Observation[Any]]:
    """A network after one draw of noise."""
    return cache(lambda name, seed: quietnn.transmit(trained(name).model, wnr_db=trained(name).wnr_db, seed=seed))


@pytest.fixture(scope="module")
def repaired(trained: Callable[[str], Any], received: Any) -> Callable[[str, str, int], Repaired]:
    """The same, repaired with some evidence; once a module."""

    @cache
    def make(name: str, evidence: str, seed: int) -> Repaired:
        inputs, labels = trained(name).known
        given = {
            "nothing": (),
            "inputs": (inputs,),
            "loader": (loader_of(inputs),),
            "inputs and labels": (inputs, labels),
            "loader with labels": (loader_of(inputs, labels),),
        }[evidence]
        loss = trained(name).loss if "labels" in evidence else None
        return quietnn.repair(received(name, seed), *given, loss=loss, max_passes=MAX_PASSES)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_the_noise_hurts_and_leaves_something(name: str, trained: Callable[[str], Any], received: Any) -> None:
    """What makes the tests below worth running."""
    network = trained(name)
    clean = float(network.scores(network.model).mean())
    noisy = sum(float(network.scores(received(name, seed).received).mean()) for seed in SEEDS) / len(SEEDS)
    assert network.floor + 0.1 * (clean - network.floor) < noisy < network.floor + 0.9 * (clean - network.floor)


LARGE = ("bert", "llama", "vit")
"""Networks whose fits take ten seconds."""


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        pytest.param(name, evidence, marks=pytest.mark.slow)
        if name in LARGE and evidence == "inputs and labels"
        else (name, evidence)
        for name in NAMES
        for evidence in ("nothing", "inputs", "loader", "inputs and labels")
    ],
)
def test_no_fall(name: str, evidence: str, trained: Callable[[str], Any], received: Any, repaired: Any) -> None:
    """The mean over draws and examples, and its standard error by both."""
    scores = trained(name).scores
    gains = torch.stack(
        [scores(repaired(name, evidence, seed).model) - scores(received(name, seed).received) for seed in SEEDS]
    )
    error = math.hypot(*(float(means.std()) / math.sqrt(len(means)) for means in (gains.mean(0), gains.mean(1))))
    assert float(gains.mean()) >= -error


@pytest.mark.parametrize("name", NAMES)
def test_a_loader_with_labels_gives_what_tensors_give(name: str, repaired: Any) -> None:
    whole, streamed = (repaired(name, evidence, SEEDS[0]) for evidence in ("inputs and labels", "loader with labels"))
    assert whole.name == streamed.name
    for key, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, streamed.model.state_dict()[key]), key


@pytest.mark.parametrize("name", ["llama", "unet"])
@pytest.mark.parametrize("evidence", ["nothing", "inputs", "inputs and labels"])
def test_without_class_numbers_there_is_no_accuracy(name: str, evidence: str, repaired: Any) -> None:
    made = repaired(name, evidence, SEEDS[0])
    assert made.details["expected_accuracy"] is None
    assert made.details["accuracy_at_least"] is None
    assert all(one.accuracy is None for one in made.details["tried"])
    for text in (str(made), repr(made), made._repr_html_()):
        assert "nan" not in text
        assert "accuracy 0" not in text
    if "labels" in evidence:
        assert "held-out loss" in str(made)
        assert "%" not in str(made)
