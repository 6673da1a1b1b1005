"""A CIFAR-10 task on miniature data: prepared inputs, fixed subsets, tuning apart from test."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from quietnn.errors import InvalidWeights
from quietnn.tasks.base import Task
from quietnn.tasks.cifar10 import BINARY, Layout, load_cifar10
from quietnn.tasks.cifar10_task import CIFAR10, RAW, cifar10_task, parse_normalisation, weights_path
from quietnn.tasks.models import IMAGE_MODELS
from quietnn.tasks.weights_file import write_weights


@pytest.fixture
def layout(tmp_path: Path, lay_out_cifar10: Callable[..., Layout]) -> Layout:
    return lay_out_cifar10(tmp_path, BINARY, num_images=12)


def make(tmp_path: Path, layout: Layout, normalisation: str | None) -> Task:
    metadata = {} if normalisation is None else {"input_normalisation": normalisation}
    write_weights(weights_path("resnet20", tmp_path), IMAGE_MODELS["resnet20"]().state_dict(), metadata=metadata)
    return cifar10_task("resnet20", data_dir=tmp_path, layouts=(layout,))


def test_the_metadata_decides_the_normalisation(tmp_path: Path, layout: Layout) -> None:
    images = load_cifar10(tmp_path, "test", layouts=(layout,), site=None)[0].float() / 255.0
    raw = make(tmp_path, layout, None).test_examples(None).inputs
    named = make(tmp_path, layout, "0.5,0.5,0.5/0.25,0.25,0.25").test_examples(None).inputs
    assert isinstance(raw, torch.Tensor)
    torch.testing.assert_close(raw, images, check_stride=False)
    torch.testing.assert_close(named, (images - 0.5) / 0.25, check_stride=False)


def test_tuning_examples_come_from_the_training_set_by_seed(tmp_path: Path, layout: Layout) -> None:
    task = make(tmp_path, layout, None)
    train = load_cifar10(tmp_path, "train", layouts=(layout,), site=None)[0].float() / 255.0
    few, other = task.tuning_examples(5, 0).inputs, task.tuning_examples(5, 1).inputs
    assert isinstance(few, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert all(any(torch.allclose(image, candidate) for candidate in train) for image in few)
    assert not torch.equal(few, other)
    assert torch.equal(few, torch.as_tensor(task.tuning_examples(5, 0).inputs))


def test_a_test_subset_is_fixed_and_scored(tmp_path: Path, layout: Layout) -> None:
    task = make(tmp_path, layout, None)
    subset = task.test_examples(6)
    assert subset.labels.tolist() == task.test_examples(6).labels.tolist()
    score = task.evaluate(task.load_model(), subset)
    assert score.num_examples == 6
    assert 0.0 <= score.accuracy <= 1.0


def test_raw_images_lie_between_zero_and_one() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    assert RAW(images).flatten().tolist() == pytest.approx([0.0, 0.2, 1.0])
    assert images.dtype == torch.uint8


def test_mean_and_std_are_per_channel() -> None:
    normalisation = parse_normalisation("0.0,0.5,1.0/1.0,0.5,0.25")
    images = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    assert normalisation(images).flatten().tolist() == [1.0, 1.0, 0.0]


def test_text_round_trips() -> None:
    assert parse_normalisation(str(CIFAR10)) == CIFAR10


@pytest.mark.parametrize("text", ["", "0.5", "1,2,3", "1,2,3/1,2", "1,2,3/1,0,1", "a,b,c/1,1,1", "1,2,3/1,1,1/4"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidWeights, match="input_normalisation"):
        parse_normalisation(text)
