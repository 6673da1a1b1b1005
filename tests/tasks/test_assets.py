"""Clean accuracy of published weights on the real test images (needs `$QUIETNN_DATA`)."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import quietnn
from quietnn.errors import MissingData
from quietnn.tasks.base import Task
from quietnn.tasks.cifar10 import load_cifar10
from quietnn.tasks.cifar10_task import weights_path
from quietnn.tasks.data_dir import resolve_data_dir
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.registry import load_task

pytestmark = pytest.mark.assets

PUBLISHED = {"resnet18": 0.9422, "resnet20": 0.9260, "shufflenetv2-x0_5": 0.9065}


OURS = Path(__file__).parents[2] / "results" / "shufflenetv2" / "shufflenetv2-cifar10.safetensors"
"""The paper's ShuffleNetV2, trained here."""


def task_or_skip(name: str, weights: Path | None = None) -> Task:
    try:
        return load_task(name, weights=weights)
    except MissingData as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_clean_accuracy_of_the_published_weights(architecture: str) -> None:
    task = task_or_skip(f"cifar10/{architecture}")
    score = task.evaluate(task.load_model(), task.test_examples(None))
    assert score.num_examples == 10_000
    assert score.accuracy == pytest.approx(PUBLISHED[architecture], abs=1e-9)


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_published_state_dict_names(architecture: str) -> None:
    path: Path = weights_path(architecture, resolve_data_dir())
    if not path.is_file():
        pytest.skip(f"no {path}")
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == IMAGE_MODELS[architecture]().state_dict().keys()


def test_cifar10_has_equal_classes() -> None:
    try:
        splits = [load_cifar10(resolve_data_dir(), split, site=None) for split in ("train", "test")]
    except MissingData as error:
        pytest.skip(str(error))
    for (_, labels), num_each in zip(splits, (5000, 1000), strict=True):
        assert labels.bincount().tolist() == [num_each] * 10


def test_minilm_fine_tuned_on_sst2() -> None:
    task = task_or_skip("sst2/minilm")
    score = task.evaluate(task.load_model(), task.test_examples(None))
    assert score.num_examples == 1821
    assert score.accuracy >= 0.87


def test_the_papers_shufflenet_trained_here() -> None:
    task = task_or_skip("cifar10/shufflenetv2", OURS)
    assert task.evaluate(task.load_model(), task.test_examples(None)).accuracy >= 0.88


def test_a_language_model_is_repaired_without_gradients_and_left_alone_without_noise() -> None:
    task = task_or_skip("lm/stories15m@stories")
    model, test = task.load_model(), task.test_examples(6)
    evidence = task.evidence(task.tuning_examples(6, 0)).without_labels()
    clean = task.score_of(model, test).loss
    assert 1.5 < clean < 2.6
    observation = quietnn.transmit(model, wnr_db=14.0, seed=1000)
    received = task.score_of(observation.model, test).loss
    repaired = quietnn.repair(observation, evidence, method="directions")
    assert task.score_of(repaired.model, test).loss < received - 0.25 * (received - clean)
    untouched = quietnn.repair(quietnn.observe(model, noise_variance=0.0), evidence, method="directions").model
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), untouched.parameters(), strict=True))
