"""A checkpoint is whole or not there."""

from pathlib import Path

import torch

from quietnn.tasks.training_state import TrainingState, forget_states, load_state, save_state

RECIPE = {"seed": 0, "sizes": (16, 24)}


def state(num_epochs_done: int) -> TrainingState:
    weights = {"w": torch.full((2,), float(num_epochs_done))}
    return TrainingState(num_epochs_done, weights, {"state": {0: weights}, "param_groups": []})


def test_the_newest_whole_state_counts(tmp_path: Path) -> None:
    assert load_state(tmp_path / "never", recipe=RECIPE) is None
    save_state(tmp_path, state(1), recipe=RECIPE)
    save_state(tmp_path, state(2), recipe=RECIPE)
    (tmp_path / ".epoch-00002.77.part").mkdir()  # what a kill in the middle of writing leaves
    found = load_state(tmp_path, recipe=RECIPE)
    assert found is not None
    assert found.num_epochs_done == 2
    assert found.model["w"].tolist() == [2.0, 2.0]
    assert found.optimizer["state"][0]["w"].tolist() == [2.0, 2.0]


def test_a_kill_between_writing_the_new_and_removing_the_old_loses_nothing(tmp_path: Path) -> None:
    save_state(tmp_path, state(9), recipe=RECIPE)
    (tmp_path / "epoch-00009").rename(tmp_path / "aside")
    save_state(tmp_path, state(10), recipe=RECIPE)
    (tmp_path / "aside").rename(tmp_path / "epoch-00009")
    found = load_state(tmp_path, recipe=RECIPE)
    assert found is not None
    assert found.num_epochs_done == 10


def test_forgetting(tmp_path: Path) -> None:
    save_state(tmp_path, state(1), recipe=RECIPE)
    (tmp_path / ".epoch-00002.77.part").mkdir()
    forget_states(tmp_path)
    assert list(tmp_path.iterdir()) == []
