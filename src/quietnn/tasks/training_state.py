"""Where a training run stands, on disk: complete or not there at all."""

import json
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from quietnn.errors import InvalidConfig
from quietnn.files import replacing_folder


@dataclass(frozen=True)
class TrainingState:
    """All that the next step depends on; the batches of an epoch follow from the seed and its number.

    Attributes:
        num_epochs_done: how many epochs are behind.
        model: the network's state dict.
        optimizer: the optimizer's state dict.
        num_steps_done: how many steps of the epoch after them are behind.
        random_state: of torch's generator within that epoch, for dropout; None between epochs.
    """

    num_epochs_done: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    num_steps_done: int = 0
    random_state: Tensor | None = None


def save_state(run_dir: Path, state: TrainingState, *, recipe: dict[str, Any]) -> None:
    """Write the state beside the older one, then replace it: a crash leaves one of the two, whole."""
    within = f"-step-{state.num_steps_done:07d}" if state.num_steps_done else ""
    final = run_dir / f"epoch-{state.num_epochs_done:05d}{within}"
    run_dir.mkdir(parents=True, exist_ok=True)
    older = _finished(run_dir)
    with replacing_folder(final) as partial:
        save_file({key: tensor.contiguous() for key, tensor in state.model.items()}, partial / "model.safetensors")
        torch.save(state.optimizer, partial / "optimizer.pt")
        if state.random_state is not None:
            save_file({"torch": state.random_state}, partial / "random.safetensors")
        (partial / "recipe.json").write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n")
    for folder in older:
        if folder != final:
            shutil.rmtree(folder, ignore_errors=True)


def load_state(run_dir: Path, *, recipe: dict[str, Any]) -> TrainingState | None:
    """The newest state of a run, or None if it has written none yet.

    Raises:
        InvalidConfig: if that run was started with another recipe, or a file of its state is damaged.
    """
    finished = _finished(run_dir)
    if not finished:
        return None
    folder = finished[-1]
    try:
        return _load(folder, run_dir, recipe)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError) as error:
        raise InvalidConfig(
            f"the state of a run in {folder} is damaged ({error}); start over with --no-resume (resume=False)"
        ) from error


def _load(folder: Path, run_dir: Path, recipe: dict[str, Any]) -> TrainingState:
    stored = json.loads((folder / "recipe.json").read_text())
    wanted = json.loads(json.dumps(recipe))
    # A setting that is not there counts as None, so that a run outlives the addition of new ones.
    changed = sorted(key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key))
    if changed:
        differences = ", ".join(f"{key} was {stored.get(key)}, now {wanted.get(key)}" for key in changed)
        raise InvalidConfig(
            f"the run in {run_dir} was started with other settings ({differences}); "
            "repeat them to resume, or start over with --no-resume (resume=False)"
        )
    epochs, _, steps = folder.name.removeprefix("epoch-").partition("-step-")
    random = folder / "random.safetensors"
    return TrainingState(
        num_epochs_done=int(epochs),
        model=load_file(folder / "model.safetensors"),
        optimizer=torch.load(folder / "optimizer.pt", weights_only=True),
        num_steps_done=int(steps or 0),
        random_state=load_file(random)["torch"] if random.is_file() else None,
    )


def forget_states(run_dir: Path) -> None:
    """Remove what earlier runs left in a folder."""
    for folder in [*_finished(run_dir), *run_dir.glob(".epoch-*.part")]:
        shutil.rmtree(folder, ignore_errors=True)


def _finished(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("epoch-*"))
