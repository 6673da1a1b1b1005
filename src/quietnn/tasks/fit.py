"""The training loop: steps, checkpoints every few minutes and after every epoch, and an exact resume.

Where a run stands is on disk: complete, or not there at all.
"""

import json
import math
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.files import replacing_folder
from quietnn.tasks.base import Examples

CHECKPOINT_SECONDS = 300.0
"""A kill costs at most this much work; an epoch of a small network is shorter and is kept whole."""


class Recipe:
    """What every recipe says; each is a frozen dataclass with defaults of its own."""

    num_epochs: int
    batch_size: int
    peak_lr: float
    warmup: float
    weight_decay: float
    seed: int

    def __post_init__(self) -> None:
        """Refuse numbers that cannot train anything."""
        for name in ("num_epochs", "batch_size", "peak_lr"):
            if not getattr(self, name) > 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be above 0, give a positive number")
        if not 0.0 <= self.warmup < 1.0:
            raise InvalidConfig(f"warmup is {self.warmup}; it is a fraction of the run, from 0 up to 1")

    def learning_rate(self, done: float) -> float:
        """The learning rate where this fraction of the run is behind."""
        raise NotImplementedError


@dataclass(frozen=True)
class Progress:
    """Where a run stands, told to the callback after every step."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class Run:
    """One sitting of a training run: where its checkpoints are, and whether it goes on from what one before left there.

    Within an epoch, a checkpoint is written `checkpoint_seconds` after the one before.
    """

    folder: Path
    resume: bool = True
    on_progress: Callable[[Progress], None] = lambda progress: None
    checkpoint_seconds: float = CHECKPOINT_SECONDS


@dataclass(frozen=True)
class TrainingState:
    """All that the next step depends on; the batches of an epoch follow from the seed and its number.

    Within an epoch that is the number of its steps and the state of torch's generator, for dropout.
    """

    num_epochs_done: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    num_steps_done: int = 0
    random_state: Tensor | None = None


@dataclass(frozen=True)
class Plan:
    """What a recipe means for one network and its data: the batches of an epoch, and the loss of a model on one.

    A run with other `settings`, which are JSON-able, is not resumed.
    """

    recipe: Recipe
    settings: dict[str, Any]
    num_steps: int
    batches: Callable[[int, torch.Generator], Iterator[Examples]]
    loss: Callable[[nn.Module, Examples], Tensor]
    max_gradient_norm: float = math.inf


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, run: Run) -> dict[str, Tensor]:
    """Train the model in place and return its weights.

    Killed and called again with `resume`, it ends where the uninterrupted run would have.
    """
    if not run.resume:
        forget_states(run.folder)
    state = load_state(run.folder, recipe=plan.settings)
    if state is None:
        state = TrainingState(0, model.state_dict(), optimizer.state_dict())
    else:
        model.load_state_dict(state.model)
        optimizer.load_state_dict(state.optimizer)
    for epoch in range(state.num_epochs_done, plan.recipe.num_epochs):
        # The epoch that was interrupted goes on; those after it begin at their first step.
        begin = state if epoch == state.num_epochs_done else replace(state, num_steps_done=0, random_state=None)
        saved = time.monotonic()
        for progress in _train_epoch(model, optimizer, plan, epoch, begin):
            run.on_progress(progress)
            last = progress.step + 1 == plan.num_steps
            if last or time.monotonic() - saved >= run.checkpoint_seconds:
                now = TrainingState(epoch + last, model.state_dict(), optimizer.state_dict())
                if not last:
                    now = replace(now, num_steps_done=progress.step + 1, random_state=torch.get_rng_state())
                save_state(run.folder, now, recipe=plan.settings)
                saved = time.monotonic()
    return model.state_dict()


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, epoch: int, begin: TrainingState
) -> Iterator[Progress]:
    """Take the epoch's steps from where `begin` stands; tell of each while its random state is torch's own."""
    recipe, num_epochs = plan.recipe, plan.recipe.num_epochs
    seed = recipe.seed * 1_000_003 + epoch
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if begin.random_state is not None:
            torch.set_rng_state(begin.random_state)
        batches = enumerate(plan.batches(epoch, torch.Generator().manual_seed(seed)))
        for step, batch in islice(batches, begin.num_steps_done, None):
            learning_rate = recipe.learning_rate((epoch + step / plan.num_steps) / num_epochs)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.zero_grad(set_to_none=True)
            loss = plan.loss(model, batch)
            if not math.isfinite(float(loss.detach())):
                raise InvalidConfig(
                    f"the loss became {float(loss.detach())} in epoch {epoch + 1} at a learning rate of "
                    f"{learning_rate:.3g}; try a lower --lr, and check the inputs for values that are not finite"
                )
            loss.backward()  # type: ignore[no-untyped-call]
            if math.isfinite(plan.max_gradient_norm):
                nn.utils.clip_grad_norm_(model.parameters(), plan.max_gradient_norm)
            optimizer.step()
            yield Progress(epoch, num_epochs, step, plan.num_steps, float(loss.detach()), learning_rate)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: matrices and kernels decay, biases and normalisation do not."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trainable if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trainable if parameter.dim() <= 1], "weight_decay": 0.0},
    ]


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
    """The newest state of a run, or None if it has written none yet; refused if it is damaged or of another recipe."""
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
