"""The training loop resumes exactly after a kill, keeps one checkpoint, and refuses what cannot work."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.tasks.coloured_images import RECIPE, coloured_images, prepare, tiny_network
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.tasks.fit import Progress, Run, TrainingState, decay_groups, forget_states, load_state, save_state
from quietnn.tasks.training import ImageRecipe, train_classifier


def train(
    run_dir: Path, *, recipe: ImageRecipe = RECIPE, stop_at: int | None = None, checkpoint_seconds: float = 300.0
) -> dict[str, Tensor]:
    images, labels = coloured_images()
    num_steps = 0

    def stop(progress: Progress) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == stop_at:
            raise KeyboardInterrupt

    return train_classifier(
        tiny_network(),
        images,
        labels,
        recipe=recipe,
        prepare=prepare,
        run=Run(run_dir, on_progress=stop, checkpoint_seconds=checkpoint_seconds),
    )


def test_a_killed_run_resumes_to_the_very_same_weights(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    for stop_at in (2, 6, 7):  # in the first epoch, in the middle, at the end of one
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "killed", stop_at=stop_at)
    resumed = train(tmp_path / "killed")
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_a_run_killed_within_an_epoch_goes_on_at_that_step(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", stop_at=7, checkpoint_seconds=0.0)  # the seventh step is lost
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["epoch-00001-step-0000002"]
    resumed = train(tmp_path / "killed", stop_at=11, checkpoint_seconds=0.0)  # ten steps are left
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_only_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00004"]


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path)
    again = train(tmp_path, stop_at=1)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_changed_recipe_does_not_resume(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(InvalidConfig, match=r"peak_lr was 0\.1, now 0\.2.*--no-resume"):
        train(tmp_path, recipe=replace(RECIPE, peak_lr=0.2))


def test_starting_over_forgets_the_old_run(tmp_path: Path) -> None:
    images, labels = coloured_images()
    train(tmp_path)
    recipe = replace(RECIPE, num_epochs=1)
    train_classifier(tiny_network(), images, labels, recipe=recipe, prepare=prepare, run=Run(tmp_path, resume=False))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00001"]


def test_divergence_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    images, labels = coloured_images()
    with pytest.raises(InvalidConfig, match=r"loss became nan in epoch 1.*lower --lr"):
        train_classifier(
            tiny_network(),
            images,
            labels,
            recipe=RECIPE,
            prepare=lambda batch: prepare(batch) * math.nan,
            run=Run(tmp_path),
        )


def test_biases_and_normalisation_do_not_decay() -> None:
    decayed, free = decay_groups(tiny_network(), 0.1)
    assert sorted(tuple(parameter.shape) for parameter in decayed["params"]) == [(3, 32), (8, 3, 3, 3)]
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert len(free["params"]) == 3


def test_progress_reaches_the_last_step(tmp_path: Path) -> None:
    images, labels = coloured_images()
    seen: list[Progress] = []
    train_classifier(
        tiny_network(), images, labels, recipe=RECIPE, prepare=prepare, run=Run(tmp_path, on_progress=seen.append)
    )
    assert len(seen) == 4 * 4
    assert (seen[-1].epoch, seen[-1].step) == (3, 3)
    assert max(progress.learning_rate for progress in seen) == pytest.approx(0.1)


SETTINGS = {"seed": 0, "sizes": (16, 24)}


def state(num_epochs_done: int) -> TrainingState:
    weights = {"w": torch.full((2,), float(num_epochs_done))}
    return TrainingState(num_epochs_done, weights, {"state": {0: weights}, "param_groups": []})


def test_the_newest_whole_state_counts(tmp_path: Path) -> None:
    assert load_state(tmp_path / "never", recipe=SETTINGS) is None
    save_state(tmp_path, state(1), recipe=SETTINGS)
    save_state(tmp_path, state(2), recipe=SETTINGS)
    (tmp_path / ".epoch-00002.77.part").mkdir()  # what a kill in the middle of writing leaves
    found = load_state(tmp_path, recipe=SETTINGS)
    assert found is not None
    assert found.num_epochs_done == 2
    assert found.model["w"].tolist() == [2.0, 2.0]
    assert found.optimizer["state"][0]["w"].tolist() == [2.0, 2.0]


def test_a_kill_between_writing_the_new_and_removing_the_old_loses_nothing(tmp_path: Path) -> None:
    save_state(tmp_path, state(9), recipe=SETTINGS)
    (tmp_path / "epoch-00009").rename(tmp_path / "aside")
    save_state(tmp_path, state(10), recipe=SETTINGS)
    (tmp_path / "aside").rename(tmp_path / "epoch-00009")
    found = load_state(tmp_path, recipe=SETTINGS)
    assert found is not None
    assert found.num_epochs_done == 10


def test_forgetting(tmp_path: Path) -> None:
    save_state(tmp_path, state(1), recipe=SETTINGS)
    (tmp_path / ".epoch-00002.77.part").mkdir()
    forget_states(tmp_path)
    assert list(tmp_path.iterdir()) == []
