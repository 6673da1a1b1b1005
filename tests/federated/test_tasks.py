"""What is learned together."""

import sys
from pathlib import Path

import pytest
import torch

from quietnn.batches import outputs_of
from quietnn.errors import InvalidConfig
from quietnn.federated.partition import even
from quietnn.federated.tasks import FederatedTask, load_federated_task


@pytest.mark.parametrize("name", ["digits", "digits/mlp"])
def test_the_digits_are_shared_out_and_fit_the_network(name: str) -> None:
    task = load_federated_task(name)
    devices = task.devices(even(task.labels, 8, seed=0))
    assert [len(data) for data in devices.values()] == [125] * 8
    one, again, other = task.fresh_model(1), task.fresh_model(1), task.fresh_model(2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert outputs_of(one.eval(), task.validation(5, seed=0).inputs).shape == (5, 10)


def test_validation_examples_are_training_examples(digits: FederatedTask) -> None:
    found = digits.validation(50, seed=3)
    assert isinstance(found.inputs, torch.Tensor)
    training = {tuple(image.flatten().tolist()) for image in digits.inputs}
    assert {tuple(image.flatten().tolist()) for image in found.inputs} <= training


def test_names_that_do_not_exist_and_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'cifar10/plain-cnn'"):
        load_federated_task("cifar10/plain-cn")
    with pytest.raises(InvalidConfig, match="digits are 8x8"):
        load_federated_task("digits", image_size=16)


def test_a_task_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    lines = (
        "from dataclasses import replace",
        "from quietnn.federated.tasks import load_federated_task",
        "def shared(): return replace(load_federated_task('digits/mlp'), name='mine')",
        "def central(): return 1",
    )
    (tmp_path / "own_federation.py").write_text("\n".join(lines))
    assert load_federated_task("own_federation:shared").name == "mine"
    with pytest.raises(InvalidConfig, match="returned a int; it must return a FederatedTask"):
        load_federated_task("own_federation:central")
