"""The embedded digits: three parts that share nothing, and the shipped network that knows them."""

from pathlib import Path

import pytest
import torch

from quietnn.errors import MissingData
from quietnn.tasks.digits import digits_task, examples


def test_the_parts_are_disjoint_and_hold_every_digit() -> None:
    parts = [examples(part) for part in ("train", "tuning", "test")]
    assert [len(part) for part in parts] == [1000, 297, 500]
    assert all(set(part.labels.tolist()) == set(range(10)) for part in parts)
    images = torch.cat([torch.as_tensor(part.inputs) for part in parts])
    assert len(images.flatten(1).unique(dim=0)) == len(images), "no image stands in two parts"


def test_the_shipped_network_knows_digits_it_has_not_seen() -> None:
    task = digits_task()
    assert task.evaluate(task.load_model(), task.test_examples(None)).accuracy > 0.97


def test_samples_are_nested_and_later_ones_apart() -> None:
    task = digits_task()
    few, many = task.tuning_examples(10, 3), task.tuning_examples(20, 3)
    assert torch.equal(torch.as_tensor(many.inputs)[:10], torch.as_tensor(few.inputs))
    assert torch.equal(task.test_examples(7, 5).labels, task.test_examples(12).labels[5:])


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no weights file"):
        digits_task(tmp_path / "none.safetensors").load_model()
